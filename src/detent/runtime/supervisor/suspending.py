"""Going quiet and coming back: confirmed by the worker, never half done, kept across restarts."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

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
    if live.quieting is None or live.quieting.done():
        live.quieting = tasks.run(_quiet(slot, live, within_s, by), f"suspending {live.id}")
    await asyncio.shield(live.quieting)


async def _quiet(slot: Slot, live: Live, within_s: float, by: By | None) -> None:
    quiet = asyncio.ensure_future(live.body.suspend())
    try:
        await done_within(live.tree.clock, within_s, quiet, live.done)
        if not live.done.done():
            need_answer(live, quiet, within_s, "go quiet")
            quiet.result()
        # The flag first: if we die in between, the slot is suspended as somebody asked.
        slot.keep(suspended=True)
        live.move(w.suspend, by=by)
    except Exception:
        await _withdraw(slot, live)
        raise
    finally:
        quiet.cancel()


async def _withdraw(slot: Slot, live: Live) -> None:
    """Never half suspended: what is not on record as quiet works on."""
    if live.state is WorkerState.RUNNING:
        await tried(live, live.body.resume(), "resume")
    try:
        slot.keep(suspended=False)
    except BadJournal as error:
        _log.error("slot %s may be suspended when it is started next: %s", slot.path, error)


def need_answer(live: Live, asked: asyncio.Future[Any], within_s: float, what: str) -> None:
    """Refuse to wait any longer for what it has not done."""
    if not asked.done():
        slot = live.record.slot
        raise SuspendTimeout(
            f"The worker in slot {slot} did not {what} within {within_s:g} s and works on."
            " Wait for what it is doing, or give it more time",
            slot=slot,
            instance=live.id,
            within_s=within_s,
        )


async def resume(slot: Slot, live: Live, *, by: By | None = None) -> None:
    """Let it go on; of one that runs already this is no news."""
    was_quiet = live.move(w.resume, by=by)
    try:
        slot.keep(suspended=False)
    finally:
        if was_quiet and live.state is WorkerState.RUNNING:
            await tried(live, live.body.resume(), "resume")
