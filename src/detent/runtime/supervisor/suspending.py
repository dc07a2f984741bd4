"""Going quiet and coming back: confirmed by the worker, never half done, kept across restarts."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from detent.errors import BadJournal, SuspendTimeout
from detent.lifecycle import worker as w
from detent.lifecycle.event import By
from detent.lifecycle.worker import Unchanged, WorkerState
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.stopping import tried
from detent.runtime.supervisor.tasks import Tasks

SUSPEND_S: Final = 30.0
"""How long a worker may take to finish what it is doing."""
_AGAIN_S: Final = 1.0
_COMING: Final = (WorkerState.CREATED, WorkerState.PENDING, WorkerState.STARTING)
_log = logging.getLogger("detent.supervisor")


async def suspend(
    slot: Slot, live: Live, tasks: Tasks, *, within_s: float = SUSPEND_S, by: By | None = None
) -> None:
    """Come back when it is quiet. From then on the slot stays suspended, whoever fills it.

    If the time passes first, the request is withdrawn: it works on, and the caller hears so.
    """
    wish = w.suspend(live.record, live.tree.order(by))
    if isinstance(wish, Unchanged):
        slot.keep(suspended=True)
        return
    if not isinstance(wish, w.Accepted):
        live.enter(wish)
    if not live.is_quieting:
        live.roused.clear()
        live.quieting = tasks.run(_quiet(slot, live, within_s, by), f"suspending {live.id}")
    assert live.quieting is not None  # noqa: S101 - set above, or by whoever asked before
    await asyncio.shield(live.quieting)


async def _quiet(slot: Slot, live: Live, within_s: float, by: By | None) -> None:
    was_suspended = slot.is_suspended
    quiet = asyncio.ensure_future(live.body.suspend())
    roused = asyncio.ensure_future(live.roused.wait())
    try:
        await done_within(live.tree.clock, within_s, quiet, live.done, roused)
        if not live.done.done():
            _need_wish(live)
            _need_answer(live, quiet, within_s)
            quiet.result()
            # The flag first: if we die in between, the slot is suspended as somebody asked.
            slot.keep(suspended=True)
        live.move(w.suspend, by=by)
    except Exception:
        # Whoever fills a slot that was suspended before is asked again, and takes nothing in.
        if not (was_suspended and slot.is_suspended):
            await _withdraw(slot, live)
        raise
    finally:
        quiet.cancel()
        roused.cancel()


async def keep_quiet(slot: Slot, live: Live, tasks: Tasks) -> None:
    """Its slot is suspended: it is asked until it is quiet, has ended, or is to go on."""
    while _is_to_be_quiet(slot, live):
        try:
            await suspend(slot, live, tasks)
        except Exception as error:
            if _is_to_be_quiet(slot, live):
                _log.error("slot %s is suspended, but not %s: %s", slot.path, live.id, error)
                await done_within(live.tree.clock, _AGAIN_S, live.done)


def _is_to_be_quiet(slot: Slot, live: Live) -> bool:
    return slot.is_suspended and live.state is WorkerState.RUNNING


async def _withdraw(slot: Slot, live: Live) -> None:
    """Never half suspended: what is not on record as quiet works on."""
    if live.state is WorkerState.RUNNING:
        await rouse(live)
    try:
        if slot.is_suspended:
            slot.keep(suspended=False)
    except BadJournal as error:
        _log.error("slot %s may be suspended when it is started next: %s", slot.path, error)


def _need_wish(live: Live) -> None:
    """Refuse to suspend what was told to go on meanwhile."""
    if live.roused.is_set():
        slot = live.record.slot
        why = f"The worker in slot {slot} was told to go on before it was quiet"
        raise SuspendTimeout(why, slot=slot, instance=live.id)


def _need_answer(live: Live, quiet: asyncio.Future[None], within_s: float) -> None:
    """Raise `SuspendTimeout` if the worker has not become quiet."""
    if not quiet.done():
        slot = live.record.slot
        raise SuspendTimeout(
            f"The worker in slot {slot} did not go quiet within {within_s:g} s and works on."
            " Wait for what it is doing, or give it more time",
            slot=slot,
            instance=live.id,
            within_s=within_s,
        )


async def resume(slot: Slot, live: Live, *, by: By | None = None) -> None:
    """Let it go on; of one that runs already this is no news.

    A slot that is suspended while its next instance is on its way is so no more.
    """
    if slot.is_suspended and live.state in _COMING:
        slot.keep(suspended=False)
        return
    was_quiet = live.move(w.resume, by=by)
    try:
        slot.keep(suspended=False)
    finally:
        if live.quieting is not None and live.is_quieting:
            live.roused.set()
            await asyncio.wait({live.quieting})
        elif live.state is WorkerState.RUNNING and (was_quiet or live.is_hushed):
            await rouse(live)


async def rouse(live: Live) -> None:
    """Tell it to go on."""
    live.is_hushed = False
    await tried(live, live.body.resume(), "resume")
