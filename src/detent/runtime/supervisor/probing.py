"""Health: asked of the worker itself, cached, with thresholds, and never a state of its own."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from detent.errors import BadJournal
from detent.lifecycle import worker as w
from detent.lifecycle.worker import Cause, Health, WorkerState
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.instance import After, Live
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.spec import OnSick, Probe
from detent.runtime.supervisor.stopping import keep_dump

if TYPE_CHECKING:
    from detent.runtime.supervisor.core import Core

_log = logging.getLogger("detent.supervisor")


async def is_well(live: Live, timeout_s: float) -> bool:
    """Ask it now; an error or no answer in time is a no."""
    asking = asyncio.ensure_future(live.body.probe())
    try:
        await done_within(live.tree.clock, timeout_s, asking, live.done)
        well = asking.done() and asking.result()
    except Exception:
        _log.exception("the probe of %s failed", live.id)
        well = False
    finally:
        asking.cancel()
    live.tree.count("probe_total", well=str(well).lower())
    return well


async def keep_probing(core: Core, slot: Slot, live: Live, probe: Probe) -> None:
    """Probe until the instance ends. Answers count only while it is running."""
    bad = good = 0
    while not await done_within(core.tree.clock, probe.interval_s, live.done):
        if live.state is WorkerState.STOPPING:
            bad = 0 if await is_well(live, probe.timeout_s) else bad + 1
            await _hurry(core, slot, live, probe, bad)
            continue
        if live.state is not WorkerState.RUNNING:
            bad = good = 0
            _tell(live, Health.UNKNOWN)
            continue
        well = await is_well(live, probe.timeout_s)
        bad, good = (0, good + 1) if well else (bad + 1, 0)
        if good >= probe.successes:
            _tell(live, Health.HEALTHY)
        elif bad >= probe.failures:
            _tell(live, Health.UNHEALTHY)
            await _act(core, slot, live, probe, bad)


def _tell(live: Live, health: Health) -> None:
    try:
        is_news = live.state is WorkerState.RUNNING and live.move(w.change_health, health)
    except BadJournal as error:
        # The next probe says it again; whoever would stop asking here would never see it sick.
        _log.error("the health of %s cannot be written down yet: %s", live.id, error)
        return
    if is_news:
        live.tree.count("probe_changes_total", health=health)


async def _hurry(core: Core, slot: Slot, live: Live, probe: Probe, bad: int) -> None:
    """Who was replaced has long to finish; but who hears nothing any more will not finish."""
    if probe.on_sick is OnSick.RESTART and bad >= max(probe.failures, probe.hopeless):
        await core.stop_live(live, slot.spec.stop_grace_s, Cause.PROBE_FAILED)


async def _act(core: Core, slot: Slot, live: Live, probe: Probe, bad: int) -> None:
    """A host without air makes everybody look sick: only so many are restarted for it at once."""
    if probe.on_sick is not OnSick.NONE:
        _log.error("%s of %s is unhealthy", live.id, slot.path)
    is_hopeless = probe.on_sick is OnSick.RESTART and bad >= probe.hopeless
    if not is_hopeless or live.state is not WorkerState.RUNNING:
        return
    if core.tree.sick_slots <= 0:
        core.tree.count("probe_restarts_held_total")
        return
    core.tree.sick_slots -= 1
    try:
        await keep_dump(live)
        if live.state is WorkerState.RUNNING:
            live.after, live.is_failing = After.AGAIN, True
            await core.stop_live(live, slot.spec.stop_grace_s, Cause.PROBE_FAILED)
    finally:
        core.tree.sick_slots += 1
