"""Subscribers: what happens to jobs, as it happens, from where they left off, or once more.

All that is kept for a subscriber is the cursor up to which it was told. One that is behind reads
pages of its own until it has caught up with what is told to all; one that does not read is let go
of, and comes back with the last cursor it has seen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Final

from detent.engine.access import Scope
from detent.errors import StoreError
from detent.lifecycle.views import OLD_NAMES, TELEMETRY_PROGRESS
from detent.stores.api import Fed, Key, key_of
from detent.surfaces.engines.desk import EVENTS, Desk
from detent.surfaces.engines.faults import BAD, Fault
from detent.surfaces.engines.links import Held, Peer
from detent.surfaces.engines.messages import Replay, Subscribe, Unsubscribe
from detent.surfaces.engines.projecting import Item, page_of

_log = logging.getLogger(__name__)

PAGE: Final = 200
QUEUE_MAX: Final = 5_000
"""What may be on its way to a subscriber before it is let go of."""
_SKEW_US: Final = 10_000_000
"""How far the order of the feed may be from that of the instants in it."""
_PAUSE_S: Final = 0.02
_AGAIN_S: Final = 1.0
_EARLY_MAX: Final = 20
_NAMES: Final = ("both", "new")
_WORDS: Final = {
    "JOB_QUEUED": "queued",
    "JOB_RUNNING": "running",
    "JOB_COMPLETED": "completed",
    "JOB_FAILED": "failed",
}


class _Reader:
    """One who hears of all jobs, of one, or of those of a user."""

    def __init__(self, peer: Peer, asked: Subscribe | Replay) -> None:
        self.peer = peer
        self.job_id = asked.job_id
        self.user_id = asked.user_id
        self.wants_old = isinstance(asked, Subscribe) and asked.names == "both"
        self.is_live = False
        self.working: asyncio.Task[None] | None = None

    def wants(self, key: Key, queue: str, user: str | None) -> bool:
        caller = self.peer.caller
        if key[0] != caller.tenant or not caller.may_use(queue):
            return False
        return self.job_id in (None, key[1]) and self.user_id in (None, user)


class _Early:
    """Progress of a job of which nobody was told yet that it runs."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self._first: list[float] | None = None
        self.late: list[float] = []

    def add(self, percent: float) -> None:
        if len(self.late) < _EARLY_MAX:
            self.late.append(percent)

    def told(self) -> list[float]:
        """The same for every reader of a page; what comes meanwhile is told after it."""
        if self._first is None:
            self._first, self.late = self.late, []
        return self._first


class Subscribers:
    """Everything about subscribers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._readers: dict[str, _Reader] = {}
        self._replays: dict[str, asyncio.Task[None]] = {}
        self._early: dict[Key, _Early] = {}
        self.pos = 0
        """Up to where all who are not behind were told."""

    def counted(self, *, old: bool) -> int:
        """How many subscribers there are that still get the old names, or do not."""
        return sum(self._gets_old(one) is old for one in self._readers.values())

    # --- coming and going -----------------------------------------------------------------------

    async def subscribe(self, peer: Peer, asked: Subscribe) -> dict[str, Any]:
        """Tell somebody what happens from a cursor on, or from now."""
        peer.caller.need_scope(Scope.READ)
        if asked.names not in _NAMES:
            raise Fault(BAD, f"names must be one of {', '.join(_NAMES)}", field="names")
        await self._forget(self._readers.pop(peer.sid, None))
        reader = self._readers[peer.sid] = _Reader(peer, asked)
        after = self.pos if asked.after is None else asked.after
        if after >= self.pos:
            reader.is_live = True
        else:
            self._lag(reader, after)
        return {"cursor": min(after, self.pos)}

    async def unsubscribe(self, peer: Peer, _: Unsubscribe) -> dict[str, Any]:
        """Tell them nothing more."""
        await self.leave(peer)
        return {}

    async def leave(self, peer: Peer) -> None:
        """Forget a subscriber that is gone, and stop its replay."""
        await self._forget(self._readers.pop(peer.sid, None))
        await _ended(self._replays.pop(peer.sid, None))

    async def _forget(self, reader: _Reader | None) -> None:
        await _ended(None if reader is None else reader.working)

    # --- what happens ---------------------------------------------------------------------------

    async def tell(self, page: Sequence[Fed]) -> None:
        """The next page, to all who are not behind."""
        live, before = [one for one in self._readers.values() if one.is_live], self.pos
        # Whoever comes or catches up from now on is told of this page by themselves.
        self.pos = page[-1].pos
        try:
            items = await page_of(self._desk.engine.store, page) if live else ()
        except Exception:
            for reader in live:
                self._lag(reader, before)
            raise
        for reader in live:
            await self._tell(reader, items)
            if self._desk.sockets.waiting(EVENTS, reader.peer.sid) > QUEUE_MAX:
                await self._desk.sockets.part(EVENTS, reader.peer.sid)

    def _lag(self, reader: _Reader, after: int) -> None:
        reader.is_live = False
        reader.working = asyncio.create_task(self._catch_up(reader, after))

    async def progress(self, held: Held, percent: float) -> None:
        """How far a job is; nobody hears of it later, and nobody before they hear that it runs."""
        if held.told < held.job.version:
            self._early.setdefault(key_of(held.job), _Early(held)).add(percent)
            return
        for reader in tuple(self._readers.values()):
            await self._progress(reader, held, percent)

    async def _progress(self, reader: _Reader, held: Held, percent: float) -> None:
        job = held.job
        if reader.is_live and reader.wants(key_of(job), job.queue, held.user):
            await self._send(reader, TELEMETRY_PROGRESS, {"jobId": job.id, "progress": percent})

    async def settle(self, key: Key) -> None:
        """It was told that the job runs; what came too early for that was told with it."""
        early = self._early.pop(key, None)
        if early is not None:
            for reader in tuple(self._readers.values()):
                for percent in early.late:
                    await self._progress(reader, early.held, percent)

    async def _catch_up(self, reader: _Reader, after: int) -> None:
        """Until nothing is left that all the others were told of."""
        while after < self.pos:
            try:
                page = await self._desk.engine.store.feed(after, PAGE)
                items = await page_of(self._desk.engine.store, page)
            except StoreError as error:
                _log.warning("a subscriber waits for the store: %s", error.message)
                if not await self._desk.service.pause(_AGAIN_S):
                    return
                continue
            # What comes after that is told to all.
            most = self.pos
            await self._tell(reader, [item for item in items if item.cursor <= most])
            after = min(page[-1].pos, most) if page else most
            await self._drained(reader)
        reader.is_live = True

    async def _tell(self, reader: _Reader, items: Sequence[Item], **more: Any) -> None:
        for item in items:
            if not reader.wants(key_of(item.stored.job), item.stored.job.queue, item.user):
                continue
            data = {**item.told, **more}
            await self._send(reader, item.name, data)
            if item.name == "JOB_FAILED":
                await self._send(reader, "job_failed", data)
            word = _WORDS.get(item.name)
            if word is not None and self._gets_old(reader):
                await self._send(reader, OLD_NAMES[word], data)
            if word == "running" and not more:
                await self._tell_early(reader, key_of(item.stored.job))

    async def _tell_early(self, reader: _Reader, key: Key) -> None:
        early = self._early.get(key)
        if early is not None:
            for percent in early.told():
                await self._progress(reader, early.held, percent)

    def _gets_old(self, reader: _Reader) -> bool:
        return self._desk.settings.legacy_events and reader.wants_old

    async def _send(self, reader: _Reader, name: str, data: dict[str, Any]) -> None:
        await self._desk.sockets.tell(EVENTS, reader.peer.sid, name, data)

    async def _drained(self, reader: _Reader) -> None:
        """Until most of what was sent is on its way."""
        while self._desk.sockets.waiting(EVENTS, reader.peer.sid) > PAGE:
            if not await self._desk.service.pause(_PAUSE_S):
                return

    # --- once more ------------------------------------------------------------------------------

    async def replay(self, peer: Peer, asked: Replay) -> dict[str, Any]:
        """Tell once more what happened between two instants; at the end comes `replay_end`."""
        peer.caller.need_scope(Scope.READ)
        if asked.until < asked.since:
            raise Fault(BAD, "until must not be before since", field="until")
        reader = _Reader(peer, asked)
        await _ended(self._replays.pop(peer.sid, None))
        self._replays[peer.sid] = asyncio.create_task(self._replayed(reader, asked))
        return {}

    async def _replayed(self, reader: _Reader, asked: Replay) -> None:
        count, loop = 0, asyncio.get_running_loop()
        first, began = None, loop.time()
        async for item in self._range(asked.since * 1_000, (asked.until + 1) * 1_000):
            if not reader.wants(key_of(item.stored.job), item.stored.job.queue, item.user):
                continue
            if asked.speed is not None:
                first = item.at if first is None else first
                due = began + (item.at - first) / 1e6 / asked.speed
                await asyncio.sleep(max(due - loop.time(), 0))
            await self._tell(reader, [item], replayed=True)
            await self._drained(reader)
            count += 1
        await self._send(reader, "replay_end", {"events": count})

    async def _range(self, since: int, until: int) -> AsyncIterator[Item]:
        store = self._desk.engine.store
        after = await self._before(since - _SKEW_US)
        while page := await store.feed(after, PAGE):
            for item in await page_of(store, page):
                if since <= item.at < until:
                    yield item
            if page[-1].event.at > until + _SKEW_US:
                return
            after = page[-1].pos

    async def _before(self, at: int) -> int:
        """A position before everything from that instant on, found by halving."""
        low, high = 0, self.pos
        while low < high:
            middle = (low + high) // 2
            found = await self._desk.engine.store.feed(middle, 1)
            if found and found[0].event.at < at:
                low = max(found[0].pos, middle + 1)
            else:
                high = middle
        return low


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is None:
        return
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
