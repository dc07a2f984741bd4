"""What is left of processes whose supervisor died: usually nothing, and never for long."""

from __future__ import annotations

import asyncio
from typing import Final

from detent.runtime.process.identity import boot_id, is_alive, kill_session
from detent.runtime.supervisor.body import Born

__all__ = ["Remnants"]

_PAUSE_S: Final = 0.02


class Remnants:
    """Looks for a process by its pid and its birth, on this very boot of this machine."""

    @property
    def boot(self) -> str:
        """Which boot of the machine this is."""
        return boot_id()

    def is_alive(self, born: Born) -> bool:
        """Whether that very process still exists."""
        return is_alive(born.pid, born.process_at)

    async def force(self, born: Born) -> None:
        """Kill all of its session, again and again until nothing is left of it."""
        while kill_session(born.pid, born.process_at) or self.is_alive(born):  # noqa: ASYNC110
            # Nobody tells of the end of a process that is not our child.
            await asyncio.sleep(_PAUSE_S)
