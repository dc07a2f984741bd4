"""What a dead supervisor may have left behind, looked for with the mechanics of processes."""

from __future__ import annotations

import asyncio
from typing import Final

from detent.host import boot_id, is_alive, kill_session, members, start_time
from detent.runtime.supervisor.body import Born

_PAUSE_S: Final = 0.02


class SessionRemains:
    """Sessions by the pid and birth of their leader; never a session that is somebody else's."""

    @property
    def boot(self) -> str:
        """Which boot of the machine this is."""
        return boot_id()

    def is_alive(self, born: Born) -> bool:
        """Whether anything of its session still exists."""
        if is_alive(born.pid, born.process_at):
            return True
        # While a session has members, its number is not given to another process.
        return start_time(born.pid) in (None, born.process_at) and bool(members(born.pid))

    async def force(self, born: Born) -> None:
        """Kill it, again and again until nothing is left."""
        while self.is_alive(born):
            kill_session(born.pid, born.process_at)
            await asyncio.sleep(_PAUSE_S)
