"""Looking after an instance while it runs: its trial, its health, its age, its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.probing import keep_probing
from detent.runtime.supervisor.recycling import keep_weighing
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.suspending import keep_quiet, rouse

if TYPE_CHECKING:
    from detent.runtime.supervisor.core import Core


class Care:
    """Everything that goes on beside a running instance, and ends with it."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def take(self, slot: Slot, live: Live) -> None:
        """Look after an instance, from the moment it is ready."""
        run = self._core.tasks.run
        if slot.is_suspended and live.record.suspendable:
            run(keep_quiet(slot, live, self._core.tasks), f"suspending {slot.path}")
        elif live.is_hushed and not slot.is_suspended:
            run(rouse(live), f"rousing {slot.path}")
        if slot.pacing.breaker is not None:
            run(self._trial(slot, live, slot.pacing.breaker.window_s), f"trial of {slot.path}")
        if slot.spec.probe is not None:
            run(keep_probing(self._core, slot, live, slot.spec.probe), f"probing {slot.path}")
        if slot.spec.recycle is not None:
            run(keep_weighing(self._core, slot, live, slot.spec.recycle), f"weighing {slot.path}")

    async def _trial(self, slot: Slot, live: Live, window_s: float) -> None:
        """A breaker closes when its trial has held for as long as it counts falls."""
        held = not await done_within(self._core.tree.clock, window_s, live.done)
        if held and slot.live is live and slot.pacing.prospered():
            live.note("breaker_closed")
