"""One store as a program uses it: opened when first needed, in the loop of its bridge."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from detent import stores
from detent.app.asking import Call
from detent.engine.addresses import Rules
from detent.engine.engine import Engine
from detent.engine.identity import Identity
from detent.engine.keyring import Keyring, new_key
from detent.engine.posting import Poster
from detent.engine.secrets import Secrets
from detent.errors import NoStore
from detent.runtime.bridge import Bridge, need_no_loop
from detent.stores.api import Limit, LimitKind, LimitRow

DEFAULT_URL = "sqlite:detent.db"
STORE_NAMES = ("DETENT_STORE", "DETENT_URL", "DATABASE_URL")
"""What names the store in the environment, for programs and commands; the first set counts."""
REMOTE = "DETENT_REMOTE"
"""Set, in processes of a worker whose jobs are kept by a server, to where that is."""
_LIMITS_MAX = 10_000


def url_of(url: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The address: what was given, what the environment says, or a file in this folder."""
    return url or told_url(environ)[0]


def told_url(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The address that the environment names, and by which name; an empty one is none."""
    name = next((name for name in STORE_NAMES if environ.get(name)), None)
    return (DEFAULT_URL, None) if name is None else (environ[name], name)


def keyring_of(url: str, environ: Mapping[str, str] = os.environ) -> Keyring:
    """Keys from the environment, or beside a database that is a file, or for this process alone."""
    if url.startswith("memory:"):
        return Keyring([new_key()])
    path = stores.file_of(url)
    return Keyring.of(environ, path and path.with_name(f"{path.name}-key"))


class Connection:
    """A bridge, and behind it an engine on a store. Nothing happens before the first question."""

    def __init__(
        self, url: str | Callable[[], str] | None = None, clock: Callable[[], int] | None = None
    ) -> None:
        self._url = url
        self._clock = clock
        self._opening: asyncio.Task[Engine] | None = None
        self._opened_url = ""
        self._left_behind: list[object] = []
        self._ready: tuple[int, Engine] | None = None
        self._limits: dict[tuple[str, str], Limit] = {}
        self.bridge = Bridge()
        self._identity = (os.getpid(), Identity(self.now))
        self._secrets: Secrets | None = None

    def move_to(self, url: str) -> None:
        """Another address, for what is opened from now on."""
        self._url = url
        self._secrets = None

    @property
    def url(self) -> str:
        """The address of the store; one that a function tells is asked for whenever it is used."""
        return url_of(self.own_url)

    @property
    def own_url(self) -> str | None:
        """The address that the program itself names, if it leaves that to nobody else."""
        return (self._url() if callable(self._url) else self._url) or None

    async def engine(self) -> Engine:
        """The engine; it must be asked for, and used, in the loop of the bridge."""
        if server := os.environ.get(REMOTE):
            why = f"This worker's jobs are kept by {server}, and it has no database of its own"
            fix = "enqueue with ctx.enqueue, or over the API of the server"
            raise NoStore(f"{why}: {fix}", what="store", server=server)
        if self._opening is not None and self._has_moved:
            await self._close()
        if self._opening is None or not self._is_good(self._opening):
            # After a fork the store of the parent is kept, unused: to close it would close theirs.
            self._left_behind.append(self._opening)
            self._limits.clear()
            self._ready = None
            self._opened_url = self.url
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    @property
    def ready(self) -> Engine | None:
        """The engine if it is open, in this process; from any thread."""
        found = self._ready
        if found is None or found[0] != os.getpid() or self._has_moved:
            return None
        return found[1]

    @property
    def _has_moved(self) -> bool:
        """Whether a function that tells the address now tells another than was opened."""
        return callable(self._url) and self.url != self._opened_url

    @property
    def identity(self) -> Identity:
        """Gives names to jobs that the store does not hear of from us."""
        if self._identity[0] != os.getpid():
            # After a fork: somebody in the parent may have held its lock.
            self._identity = (os.getpid(), Identity(self.now))
        return self._identity[1]

    @property
    def secrets(self) -> Secrets:
        """Locks and unlocks secret arguments, in any thread, whether the store is open or not."""
        if self._secrets is None:
            self._secrets = Secrets(keyring_of(self.url))
        return self._secrets

    @property
    def is_memory(self) -> bool:
        """Whether the store is in memory, where nobody has transactions of their own."""
        return self.url.startswith("memory:")

    @property
    def has_clock(self) -> bool:
        """Whether it goes by a clock of its own, and not by that of the machine."""
        return self._clock is not None

    def now(self) -> int:
        """The time, without asking the store."""
        return self._clock() if self._clock else time.time_ns() // 1_000

    def has_told(self, rows: Mapping[tuple[str, str], Limit]) -> bool:
        """Whether the store has heard of these limits from us."""
        return all(self._limits.get(name) == limit for name, limit in rows.items())

    async def set_limits_of(self, calls: Iterable[Call[Any]]) -> None:
        """Tell the store of the limits that these calls are to run under."""
        rows: dict[tuple[str, str], Limit] = {}
        for call in calls:
            rows |= call.limit()
        await self.set_limits(rows)

    async def set_limits(self, rows: Mapping[tuple[str, str], Limit]) -> None:
        """Tell the store of limits per key that it has not heard from us yet."""
        new = {name: limit for name, limit in rows.items() if self._limits.get(name) != limit}
        if not new:
            return
        said = [LimitRow(LimitKind.KEY, key, limit, tenant) for (tenant, key), limit in new.items()]
        await (await self.engine()).set_limits(said)
        if len(self._limits) > _LIMITS_MAX:
            self._limits.clear()
        self._limits |= new

    def close(self, *, in_loop: bool = False) -> None:
        """Finish what was asked for and let go of the store; the next call opens it again.

        A program may also just end: whatever it was answered is durable. Where a loop runs it is
        refused, unless somebody knows that this store is closed in no time.
        """
        if self._opening is not None:
            if not in_loop:
                need_no_loop()
                self.bridge.rest()
            self.bridge.wait(self._close())
        self.bridge.stop()
        self._secrets = None

    async def _open(self) -> Engine:
        store = stores.open(self.url, clock=self._clock)
        secrets, poster = self.secrets, Poster(Rules.of(os.environ))
        engine = Engine(await store.__aenter__(), secrets=secrets, poster=poster)
        self._ready = os.getpid(), engine
        return engine

    async def _close(self) -> None:
        opening, self._opening, self._ready = self._opening, None, None
        # Whoever opens it again may have other keys by then.
        self._secrets = None
        if opening is not None and self._is_good(opening):
            engine = await opening
            await engine.__aexit__(None, None, None)
            await engine.store.__aexit__(None, None, None)

    def _is_good(self, opening: asyncio.Task[Engine]) -> bool:
        """Under way or done, and in the loop of today."""
        if opening.get_loop() is not asyncio.get_running_loop():
            return False
        return not opening.done() or (not opening.cancelled() and opening.exception() is None)
