"""The connections of callers' own loops: who comes alone, again and again, sends a job from there.

The way to the loop of the store and back takes a lone caller as long as the job itself. Who has
company goes that way all the same, and shares a commit with the others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final
from weakref import WeakKeyDictionary

from detent.stores.postgres.address import Address
from detent.stores.postgres.bearing import ID
from detent.stores.postgres.connection import Connection, open_connection
from detent.stores.postgres.faults import FAULTS, UNFIT

NAME: Final = "detent caller"
"""What the server shows of such a connection."""
ALONE: Final = "enqueue_one"
TOLD: Final = "enqueue_one_and_tell"
"""What is sent over it: a job, or a job with word of it."""
_COMES: Final = 8
"""Who has come so often is expected to come again: a connection is worth its while."""
_PAUSE_S: Final = 1.0
"""If there was no longer pause between: a loop that seldom runs takes too long to open one."""
_ANSWER_S: Final = 5.0
"""Who is not answered for so long goes the other way, which has a patience of its own."""
_IDLE_S: Final = 30.0
"""A connection that nobody has used for so long is closed."""
_AGAIN_S: Final = 30.0
"""After a connection could not be opened, or was lost, so long nobody tries."""
_LEAVE_S: Final = 5.0


class Near:
    """What belongs to one loop, and is touched in it alone."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._comes = 0
        self._came_at = 0.0
        self._not_before = 0.0
        self._used_at = 0.0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._connection: Connection | None = None
        self._keeping: AsyncGenerator[None, None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._parting: asyncio.Task[None] | None = None
        self.crossing = 0
        """How many callers of this loop are on their way to that of the store."""

    @property
    def has_company(self) -> bool:
        """Whether others of this loop are sending, or on their way to the loop of the store."""
        return bool(self.crossing) or not self._is_idle.is_set()

    def is_free(self, values: list[Any]) -> bool:
        """Whether there is a connection for a caller who has no company; soon, if not yet.

        What this one would send is what one that is opened is tried with.
        """
        if self._connection is not None:
            return True
        now = time.monotonic()
        self._comes = self._comes + 1 if now < self._came_at + _PAUSE_S else 1
        self._came_at = now
        if self._comes >= _COMES and self._opening is None and now > self._not_before:
            self._opening = asyncio.ensure_future(self._open(values))
        return False

    async def send(self, statement: str, values: list[Any]) -> bool:
        """Whether the statement is known to be committed.

        If not it has to be sent on the other way, and there one finds out what is wrong.
        """
        connection = self._connection
        if connection is None:
            return False
        self._is_idle.clear()
        self._used_at = time.monotonic()
        try:
            await connection.send(statement, values)
        except UNFIT:
            return False
        except FAULTS:
            self.drop()
            return False
        except BaseException:
            # Whoever is called off in the middle leaves a connection that nobody can judge.
            self.drop()
            raise
        finally:
            self._is_idle.set()
        return True

    def drop(self) -> None:
        """Do without a connection, for a while."""
        self._not_before = time.monotonic() + _AGAIN_S
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.drop()

    async def close(self) -> None:
        """Let whoever is sending finish, and hang up."""
        if self._opening is not None:
            self._opening.cancel()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), _LEAVE_S)
        if self._keeping is not None:
            # A loop that is at its end may be doing that already.
            with suppress(RuntimeError):
                await self._keeping.aclose()

    async def _open(self, values: list[Any]) -> None:
        try:
            connection = await open_connection(self._address, name=NAME, answer_s=_ANSWER_S)
            self._keeping = self._kept(connection)
            await anext(self._keeping)
            await _warmed(connection, values)
        except FAULTS:
            self.drop()
            if self._keeping is not None:
                await self._keeping.aclose()
        else:
            self._used_at = time.monotonic()
            self._connection = connection
            self._watch()
        finally:
            self._opening = None

    async def _kept(self, connection: Connection) -> AsyncGenerator[None, None]:
        """Hangs up when the loop ends: before it does it closes whatever generates in it."""
        try:
            yield
        finally:
            if self._connection is connection:
                self._connection = None
            with suppress(*FAULTS):
                await connection.close()

    def _watch(self) -> None:
        asyncio.get_running_loop().call_later(_IDLE_S, self._look)

    def _look(self) -> None:
        """Hang up if nobody has come for a while; whoever comes again begins anew."""
        if self._connection is None:
            return
        if time.monotonic() < self._used_at + _IDLE_S or not self._is_idle.is_set():
            self._watch()
        else:
            self._comes = 0
            self._parting = asyncio.ensure_future(self.close())


async def _warmed(connection: Connection, values: list[Any]) -> None:
    """Let the server read and plan the statements, which takes longer than all else about a job.

    Nothing comes of it: whatever they write is rolled back, and no word is sent.
    """
    await connection.run("begin")
    for statement, word in ((ALONE, []), (TOLD, [""])):
        made_up = [*values, *word]
        made_up[ID] = f"{values[ID]}.{len(word)}"
        await connection.send(statement, made_up)
    await connection.run("rollback")


class Nearby:
    """What belongs to each of the loops that have callers."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._home = asyncio.get_running_loop()
        self._is_open = not address.pgbouncer
        """A pooler would be asked for three answers where there is one otherwise."""
        self._near: WeakKeyDictionary[asyncio.AbstractEventLoop, Near] = WeakKeyDictionary()

    def here(self) -> Near | None:
        """What belongs to this loop; nothing in that of the store, whose way is short."""
        loop = asyncio.get_running_loop()
        if loop is self._home or not self._is_open:
            return None
        found = self._near.get(loop)
        if found is None:
            with self._lock:
                found = self._near[loop] = Near(self._address)
        return found

    async def close(self) -> None:
        """Close the connections of all loops, wherever they are."""
        self._is_open = False
        with self._lock:
            near = list(self._near.items())
        for loop, one in near:
            # One that is at its end has closed its own.
            with suppress(RuntimeError, TimeoutError):
                if loop.is_running():
                    closing = asyncio.run_coroutine_threadsafe(one.close(), loop)
                    await asyncio.wait_for(asyncio.wrap_future(closing), 2 * _LEAVE_S)
                else:
                    loop.call_soon_threadsafe(one.drop)
