"""One store as a program uses it: opened when first needed, in the loop of its bridge."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from detent import stores
from detent.engine.addresses import Rules
from detent.engine.engine import Engine
from detent.engine.keyring import Keyring, new_key
from detent.engine.posting import Poster
from detent.engine.secrets import Secrets
from detent.runtime.bridge import Bridge
from detent.stores.api import Limit, LimitKind, LimitRow

__all__ = ["DEFAULT_URL", "Connection", "url_of"]

DEFAULT_URL = "sqlite:detent.db"
_LIMITS_MAX = 10_000


def url_of(url: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The address: what was given, what the environment says, or a file in this folder."""
    return url or environ.get("DETENT_URL") or environ.get("DATABASE_URL") or DEFAULT_URL


def _keyring(url: str, environ: Mapping[str, str] = os.environ) -> Keyring:
    """Keys from the environment, or beside a database that is a file, or for this process alone."""
    if url.startswith("memory:"):
        return Keyring([new_key()])
    path = stores.file_of(url)
    return Keyring.of(environ, path and path.with_name(f"{path.name}-key"))


class Connection:
    """A bridge, and behind it an engine on a store. Nothing happens before the first question."""

    def __init__(self, url: str | None = None, clock: Callable[[], int] | None = None) -> None:
        self._url = url
        self._clock = clock
        self._opening: asyncio.Task[Engine] | None = None
        self._left_behind: list[object] = []
        self._limits: dict[tuple[str, str], Limit] = {}
        self.bridge = Bridge()

    async def engine(self) -> Engine:
        """The engine; it must be asked for, and used, in the loop of the bridge."""
        if self._opening is None or not self._is_good(self._opening):
            # After a fork the store of the parent is kept, unused: to close it would close theirs.
            self._left_behind.append(self._opening)
            self._limits.clear()
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def set_limits(self, rows: Mapping[tuple[str, str], Limit]) -> None:
        """Tell the store of limits per key that it has not heard from us yet."""
        new = {name: limit for name, limit in rows.items() if self._limits.get(name) != limit}
        if not new:
            return
        store = (await self.engine()).store
        said = [LimitRow(LimitKind.KEY, key, limit, tenant) for (tenant, key), limit in new.items()]
        await store.set_limits(said, now=store.now())
        if len(self._limits) > _LIMITS_MAX:
            self._limits.clear()
        self._limits |= new

    def close(self) -> None:
        """Finish what was asked for and let go of the store; the next call opens it again.

        A program may also just end: whatever it was answered is durable.
        """
        if self._opening is not None:
            self.bridge.run(self._close())
        self.bridge.stop()

    async def _open(self) -> Engine:
        store = stores.open(url_of(self._url), clock=self._clock)
        secrets, poster = Secrets(_keyring(url_of(self._url))), Poster(Rules.of(os.environ))
        return Engine(await store.__aenter__(), secrets=secrets, poster=poster)

    async def _close(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None and self._is_good(opening):
            engine = await opening
            await engine.__aexit__(None, None, None)
            await engine.store.__aexit__(None, None, None)

    def _is_good(self, opening: asyncio.Task[Engine]) -> bool:
        """Under way or done, and in the loop of today."""
        if opening.get_loop() is not asyncio.get_running_loop():
            return False
        return not opening.done() or (not opening.cancelled() and opening.exception() is None)
