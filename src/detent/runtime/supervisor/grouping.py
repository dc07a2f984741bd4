"""Siblings that fall and rise together: the others are stopped in reverse, then all start again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from detent.runtime.supervisor.instance import After
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.strategy import affected

if TYPE_CHECKING:
    from detent.runtime.supervisor.core import Core


class Group:
    """One round at a time. Who falls while a round has not started them yet, belongs to it."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._fallen: set[str] = set()
        self._waiting: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def cares_for(self, slot: Slot) -> bool:
        """Whether the round that is under way will start it."""
        return slot.name in self._waiting

    def fell(self, slot: Slot) -> None:
        """Start a round for it, now or after the one that is under way."""
        self._fallen.add(slot.name)
        if self._task is None or self._task.done():
            self._task = self._core.tasks.run(self._rounds(), "restarting a group")

    async def _rounds(self) -> None:
        while self._fallen and self._core.is_open:
            names = tuple(self._core.slots)
            first = min(self._fallen & set(names), key=names.index, default=None)
            self._fallen.clear()
            if first is not None:
                await self._round(affected(self._core.plan.strategy, names, first))

    async def _round(self, names: tuple[str, ...]) -> None:
        slots = [self._core.slots[name] for name in names if self._core.slots[name].is_wanted]
        self._waiting = {slot.name for slot in slots}
        try:
            for slot in reversed(slots):
                slot.is_awaited = True
                await self._stop(slot)
            for slot in slots:
                self._waiting.discard(slot.name)
                if not await self._raise(slot):
                    break
        finally:
            self._waiting = set()
            for slot in slots:
                slot.is_awaited = False

    async def _stop(self, slot: Slot) -> None:
        live = slot.live
        if live is not None:
            live.after = After.GROUP
            await self._core.stop_live(live, slot.spec.stop_grace_s)

    async def _raise(self, slot: Slot) -> bool:
        """Whether the next may follow: one that does not come up has started the next round."""
        if not self._core.may_start(slot):
            return True
        await self._core.bring_up(slot)
        # Its end is heard one turn later.
        await asyncio.sleep(0)
        return slot.name not in self._fallen
