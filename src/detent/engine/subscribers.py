"""Committed events reach subscribers in this process: in the order of the feed, none left out.

How far a subscriber is, is a small record under its name. Of many processes with a subscriber of
that name one delivers at a time: it holds the record until an instant that it keeps moving, and
every step of the cursor is a compare-and-set on the record's version. Whoever takes over after a
crash begins where the cursor stands, so an event may come twice and never not at all.

A subscriber that fails is tried again from the event it failed at, ever more patiently. Others do
not notice: each has a loop of its own, and nothing of the engine waits for any of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from detent.engine.coalesce import Coalescer
from detent.engine.identity import Identity
from detent.errors import BadOption, StoreError
from detent.lifecycle.event import Event
from detent.stores.api import Committed, Fed, Own, Record, Store, Unit

KIND = "subscriber"
BATCH = 100
"""How many events are delivered before the cursor is moved: what may come twice after a crash."""
HOLD_US = 15_000_000
"""How long a process that has died keeps others from going on."""
KEEP_S = 5.0
PAUSE_S = 0.1
"""How often an idle subscriber looks at the feed."""
UNSEEN_MAX = 10_000
"""After so many events that it does not want the cursor is moved all the same."""
FIRST_US, MOST_US = 1_000_000, 300_000_000

_log = logging.getLogger(__name__)


class Stopped(Exception):
    """A batch was delivered up to a position; what comes after it failed, for the cause."""

    def __init__(self, after: int) -> None:
        super().__init__(after)
        self.after = after


class Subscriber(msgspec.Struct, frozen=True):
    """Who wants to hear of which events; a new one hears of what comes, or of all there is."""

    name: str
    wants: Callable[[Event], bool]
    deliver: Callable[[Sequence[Fed]], Awaitable[None]]
    from_start: bool = False


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a subscriber is, who delivers, and how it fares."""

    after: int
    holder: str | None = None
    until: int = 0
    failures: int = 0
    retry_at: int = 0
    error: str = ""


def one_by_one(
    deliver: Callable[[Event], Awaitable[None]],
) -> Callable[[Sequence[Fed]], Awaitable[None]]:
    """The way to deliver for somebody who takes events singly."""

    async def each(batch: Sequence[Fed]) -> None:
        after = 0
        for fed in batch:
            try:
                await deliver(fed.event)
            except Exception as error:
                raise Stopped(after) from error
            after = fed.pos

    return each


class Subscribers:
    """All subscribers of one process on one store."""

    def __init__(self, store: Store, coalescer: Coalescer, identity: Identity) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._holder = f"subscribers-{identity.id()}"
        self._all: dict[str, _Post] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of all subscribers here."""
        return frozenset(self._all)

    def add(self, subscriber: Subscriber) -> None:
        """Deliver to it from the next turn on."""
        if subscriber.name in self._all:
            why = f"Two subscribers are called {subscriber.name!r}, and would share one cursor"
            raise BadOption(why, option="name", value=subscriber.name)
        post = _Post(subscriber, self._store, self._coalescer, self._identity)
        post.holder = self._holder
        self._all[subscriber.name] = post

    async def begin(self) -> None:
        """Let those who have no cursor yet begin here, before they are first delivered to."""
        for post in self._all.values():
            await post.look()

    async def turn(self) -> int:
        """A batch to each of them, at the same time; how many events were delivered in all."""
        return sum(await asyncio.gather(*(post.turn() for post in self._all.values())))

    async def run(self) -> None:
        """Turn after turn, until called off; each subscriber at its own pace."""
        try:
            await asyncio.gather(*(post.run() for post in self._all.values()))
        finally:
            with suppress(StoreError):
                await self.let_go()

    async def let_go(self) -> None:
        """Let another process go on at once with whatever is held here."""
        for post in self._all.values():
            await post.let_go()


class _Post:
    """One subscriber at work in this process."""

    def __init__(
        self, subscriber: Subscriber, store: Store, coalescer: Coalescer, identity: Identity
    ) -> None:
        self._subscriber = subscriber
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._version = 0
        self._cursor = Cursor(0)
        self._unseen = 0
        self._writing = asyncio.Lock()
        self.holder = ""

    async def run(self) -> None:
        while True:
            try:
                told = await self.turn()
            except Exception as error:
                # The store is away, perhaps. Nothing was delivered that is not delivered again.
                _log.warning("subscriber %s: %s", self._subscriber.name, error)
                told = 0
            await asyncio.sleep(0 if told else PAUSE_S)

    async def turn(self) -> int:
        """The next batch, if it is ours to deliver."""
        await self.look()
        now = self._store.now()
        if self._cursor.retry_at > now or self._is_taken(now):
            return 0
        batch, end = await self._next()
        if not batch:
            await self._pass_over(end)
            return 0
        if not await self._write(self._held(now)):
            return 0
        return await self._deliver(batch, end)

    async def let_go(self) -> None:
        async with self._writing:
            pass
        if self._cursor.holder == self.holder:
            await self._write(replace(self._cursor, holder=None, until=0))

    def _is_taken(self, now: int) -> bool:
        cursor = self._cursor
        return cursor.holder not in (None, self.holder) and cursor.until > now

    def _held(self, now: int) -> Cursor:
        return replace(self._cursor, holder=self.holder, until=now + HOLD_US)

    async def look(self) -> None:
        """The record as it is; a new subscriber gets one."""
        [record] = await self._store.record([(KIND, "", self._subscriber.name)])
        if record is None:
            first = 0 if self._subscriber.from_start else await end_of(self._store)
            self._version, self._unseen = 0, 0
            await self._write(Cursor(first))
            return
        self._version = record.version
        self._cursor = msgspec.json.decode(record.data or "", type=Cursor)

    async def _next(self) -> tuple[list[Fed], int]:
        """The next events that are wanted, and how far the feed was read for them."""
        after = max(self._cursor.after, self._unseen)
        fed = await self._store.feed(after, BATCH)
        return [one for one in fed if self._subscriber.wants(one.event)], fed[-1].pos if fed else 0

    async def _pass_over(self, end: int) -> None:
        """Nothing of interest: remembered here, and written down only now and then."""
        self._unseen = max(end, self._unseen)
        if self._unseen - self._cursor.after > UNSEEN_MAX:
            await self._write(replace(self._cursor, after=self._unseen))

    async def _deliver(self, batch: Sequence[Fed], end: int) -> int:
        keeping = asyncio.create_task(self._keep())
        try:
            await self._subscriber.deliver(batch)
        except Exception as error:
            await self._failed(error)
            return sum(one.pos <= self._cursor.after for one in batch)
        else:
            done = replace(self._cursor, after=end, failures=0, retry_at=0, error="")
            await self._write(done)
            return len(batch)
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    async def _failed(self, error: Exception) -> None:
        """Go back to where it failed, and wait; what was taken before that is not told again."""
        cause = error.__cause__ if isinstance(error, Stopped) else error
        after = max(error.after if isinstance(error, Stopped) else 0, self._cursor.after)
        failures = 1 if after > self._cursor.after else self._cursor.failures + 1
        wait = min(FIRST_US * 2 ** (failures - 1), MOST_US) if failures < 20 else MOST_US
        said = type(cause).__qualname__
        _log.warning(
            "subscriber %s failed (%s), again in %s s", self._subscriber.name, said, wait / 1e6
        )
        waiting = Cursor(after, None, 0, failures, self._store.now() + wait, said)
        await self._write(waiting)

    async def _keep(self) -> None:
        """Go on holding the record however long a delivery takes."""
        while True:
            await asyncio.sleep(KEEP_S)
            await self._write(self._held(self._store.now()))

    async def _write(self, cursor: Cursor) -> bool:
        """Whether the record was as we knew it; if not, somebody else delivers now.

        Whoever is called off meanwhile must still know what was written: it will be let go of.
        """
        return await asyncio.shield(self._written(cursor))

    async def _written(self, cursor: Cursor) -> bool:
        async with self._writing:
            data = msgspec.json.encode(cursor).decode()
            record = Record(KIND, self._subscriber.name, self._version + 1, data)
            [outcome] = await self._coalescer.commit([Unit(self._identity.id(), puts=(record,))])
            if not isinstance(outcome, Committed | Own):
                return False
            self._version, self._cursor = record.version, cursor
            return True


async def end_of(store: Store) -> int:
    """The last position of the feed, found by halving: a feed can be long."""
    low, high = 0, 1
    while await store.feed(high, 1):
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if await store.feed(middle, 1):
            low = middle + 1
        else:
            high = middle
    return low
