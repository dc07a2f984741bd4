"""Replacing a worker that does nothing wrong: too much memory, too old, or enough work done."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from detent.errors import StartFailed
from detent.lifecycle.worker import Cause, WorkerState
from detent.runtime.supervisor.body import Usage
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.instance import After, Live
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.spec import Recycle, Spec
from detent.runtime.supervisor.starting import launch

if TYPE_CHECKING:
    from detent.runtime.supervisor.core import Core

_log = logging.getLogger("detent.supervisor")
_LONG_S: Final = 600.0
"""Who was not too big for so long has leaked. Who was so before that may just need so much: it is
not helped by being replaced, and neither are its jobs, so the next is spared for twice as long."""
_WORKING = (WorkerState.RUNNING, WorkerState.SUSPENDED)


def too_much(rules: Recycle, usage: Usage | None, uptime_s: float, age_s: float | None) -> str:
    """Which limit is passed, the hard one first; empty if none is. `age_s` is this one's own."""
    used = usage or Usage()
    if rules.hard_rss_bytes is not None and used.rss_bytes > rules.hard_rss_bytes:
        return "hard_rss"
    if rules.soft_rss_bytes is not None and used.rss_bytes > rules.soft_rss_bytes:
        return "soft_rss"
    if rules.done is not None and used.done >= rules.done:
        return "done"
    return "age" if age_s is not None and uptime_s >= age_s else ""


async def keep_weighing(core: Core, slot: Slot, live: Live, rules: Recycle) -> None:
    """Check memory and age of an instance, until it ends; once it is replaced, its memory only."""
    spread = 1 + rules.variance * (2 * core.tree.chance.random() - 1)
    age_s = None if rules.age_s is None else rules.age_s * spread
    lenient, big_s = replace(rules, soft_rss_bytes=None), math.inf
    while not await done_within(core.tree.clock, rules.check_s, live.done):
        used, uptime_s = live.body.usage(), live.uptime_s
        why = too_much(rules, used, uptime_s, age_s)
        if why == "soft_rss":
            big_s = min(big_s, uptime_s)
            why = why if uptime_s >= slot.spared_s else too_much(lenient, used, uptime_s, age_s)
        if slot.live is not live and why == "hard_rss":
            await core.stop_live(live, 0, Cause.RECYCLED)
        elif why and live.state in _WORKING and _is_next(core, slot, live, why):
            live.note("recycled", why)
            core.tree.count("recycled_total", reason=why)
            if why == "soft_rss":
                slot.spared_s = 0.0 if big_s >= _LONG_S else 2 * uptime_s
            await _recycle(core, slot, live, why, rules)


def _is_next(core: Core, slot: Slot, live: Live, why: str) -> bool:
    """While another still leaves this slot, nobody else does: they would become more and more."""
    is_alone = sum(its is slot for its in core.lives.values()) == 1
    return slot.live is live and (is_alone or why == "hard_rss")


async def _recycle(core: Core, slot: Slot, live: Live, why: str, rules: Recycle) -> None:
    """One that had to be killed before it finished anything counts as fallen.

    The next will hardly do better.
    """
    if why == "hard_rss":
        used = live.body.usage()
        live.after, live.is_failing = After.AGAIN, used is None or used.done == 0
        await core.stop_live(live, 0, Cause.RECYCLED)
        return
    await swap(core, slot, slot.spec, Cause.RECYCLED, patient=False, grace_s=rules.grace_s)


async def swap(
    core: Core,
    slot: Slot,
    spec: Spec,
    cause: Cause,
    *,
    patient: bool = True,
    grace_s: float | None = None,
) -> StartFailed | None:
    """Another instance in the place of this one; why there is none, if the old one stays.

    Where two cannot live at once the old one goes first, and then there is no way back. Whoever is
    not `patient` hears when the new one is there, and the old one takes its time to go: as long as
    its slot says, or `grace_s`.
    """
    async with slot.busy:
        old = slot.live
        if old is None or old.done.done() or not core.may_start(slot):
            return StartFailed(f"Slot {slot.path} has no worker to replace now", slot=slot.path)
        if not replaces_first(spec):
            old.after, slot.spec = After.GROUP, spec
            await core.stop_live(old, spec.stop_grace_s, cause)
            fresh = await core.bring_up(slot, urged=cause is Cause.REQUESTED)
            return None if fresh.record.started_at is not None else core.start_failed(slot, fresh)
        failed = await _swap_first(core, slot, old, spec, cause)
        if failed is None:
            stopping = core.stop_live(old, spec.stop_grace_s if grace_s is None else grace_s, cause)
            going = core.tasks.run(stopping, f"seeing off {old.id}")
            if patient:
                await asyncio.shield(going)
        return failed


async def _swap_first(
    core: Core, slot: Slot, old: Live, spec: Spec, cause: Cause
) -> StartFailed | None:
    """Whoever ends while the other is not there yet, is not started a third time beside it."""
    old.after = After.GROUP
    fresh = await core.born(slot, spec)
    fresh.is_urged = cause is Cause.REQUESTED
    await launch(core, slot, fresh, spec)
    if slot.live is not None and slot.live is not old:
        # A group that fell has filled the slot anew meanwhile.
        await core.stop_live(fresh, spec.stop_grace_s)
        return StartFailed(f"Slot {slot.path} was started anew meanwhile", slot=slot.path)
    if fresh.record.started_at is not None and not fresh.done.done():
        slot.live, slot.spec = fresh, spec
        return None
    failed = core.start_failed(slot, fresh)
    if cause is Cause.RECYCLED:
        # Whoever asks for another is told; here nobody has.
        _log.error("the old worker stays: %s", failed)
    slot.pacing.fell(0.0)
    if old.after is After.GROUP:
        old.after = After.POLICY
    if old.done.done() and core.may_start(slot):
        core.bring_up_soon(slot)
    return failed


def replaces_first(spec: Spec) -> bool:
    """Whether two instances of the slot may live at once; two supervisors never may."""
    if spec.kind == "supervisor":
        return False
    return spec.recycle is None or spec.recycle.replace_first
