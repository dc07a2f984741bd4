"""The stop ladder: ask, wait, keep its stacks, look once more, order the kill, force, reap."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from detent.lifecycle import worker as w
from detent.lifecycle.event import By
from detent.lifecycle.worker import Cause, Ending, Exit, Instance, WorkerState
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.instance import Abandonable, Live
from detent.runtime.supervisor.tasks import Tasks

_log = logging.getLogger("detent.supervisor")
_US: Final = 1_000_000
_DUMP_AT: Final = 0.8
"""The share of the grace after which its stacks are asked for."""
_DUMP_S: Final = 1.0
_REAP_S: Final = 0.02
"""The last look before the kill: long enough for an end that has happened to be noticed."""
_FORCE_AGAIN_S: Final = 1.0
_SIGKILL: Final = 9
_ACT_S: Final = 10.0
"""How long a body may take to pass on what it was told."""


async def stop(
    live: Live,
    tasks: Tasks,
    grace_s: float,
    *,
    cause: Cause = Cause.REQUESTED,
    by: By | None = None,
) -> Instance:
    """Ask it to end and come back when it has; a second stop joins the first, and may shorten it.

    A grace of nothing is the kill: the same ladder without the waiting.
    """
    deadline = live.tree.clock.monotonic() + grace_s
    changed = live.move(w.stop, force_at=_force_at(live, deadline, grace_s), cause=cause, by=by)
    if live.state.is_terminal:
        return live.record
    if live.ladder is None:
        live.deadline = deadline
        live.ladder = tasks.run(_descend(live, grace_s), f"stopping {live.id}")
    elif changed and deadline < live.deadline:
        live.deadline = deadline
        live.hastened.set()
        await tried(live, live.body.hasten(grace_s), "hasten")
    return await asyncio.shield(live.done)


def _force_at(live: Live, deadline: float, grace_s: float) -> int:
    """The instant to write down. A further one counts from the first: clocks are set meanwhile."""
    known = live.record.force_at
    if live.ladder is None or known is None:
        return live.tree.clock.now() + round(grace_s * _US)
    return known + round((deadline - live.deadline) * _US)


async def _descend(live: Live, grace_s: float) -> None:
    clock = live.tree.clock
    ended = live.done
    if grace_s > 0:
        await _asked(live, grace_s)
        begun = live.deadline - grace_s
        if await _ends_before(live, lambda: begun + _DUMP_AT * (live.deadline - begun)):
            return
        await keep_dump(live)
        if await _ends_before(live, lambda: live.deadline):
            return
    else:
        await keep_dump(live)
    if await done_within(clock, _REAP_S, ended):
        return
    await _force(live)


async def _asked(live: Live, grace_s: float) -> None:
    """What is not there yet is asked when it is; a branch is there before all below it are."""
    if live.body.kind == "supervisor":
        await tried(live, live.body.ask(grace_s), "ask")
    existing = asyncio.ensure_future(live.exists.wait())
    try:
        remaining = live.deadline - live.tree.clock.monotonic()
        if await done_within(live.tree.clock, remaining, existing, live.done):
            await tried(live, live.body.ask(grace_s), "ask", min(remaining, _ACT_S))
    finally:
        existing.cancel()


async def _ends_before(live: Live, when: Callable[[], float]) -> bool:
    """Whether it ends by then; `when` is asked again whenever the grace was cut."""
    clock = live.tree.clock
    while (left := when() - clock.monotonic()) > 0:
        cut = asyncio.ensure_future(live.hastened.wait())
        try:
            await done_within(clock, left, live.done, cut)
        finally:
            cut.cancel()
        if live.done.done():
            return True
        live.hastened.clear()
    return live.done.done()


async def keep_dump(live: Live) -> None:
    """Store what its threads are doing, before it is forced; soon or not at all."""
    if not live.exists.is_set() or live.done.done():
        return
    asking = asyncio.ensure_future(live.body.dump())
    try:
        await done_within(live.tree.clock, _DUMP_S, asking, live.done)
        if asking.done() and (text := asking.result()):
            live.tree.journal.keep_dump(live.id, text)
    except Exception:
        _log.exception("the stacks of %s could not be kept", live.id)
    finally:
        asking.cancel()


async def give_up_init(live: Live) -> None:
    """It took too long to become ready: force it, and let the end say so."""
    live.timed_out = True
    await keep_dump(live)
    await _force(live)


async def _force(live: Live) -> None:
    """Order first, then act. It ends when nothing of it is left, however long that takes."""
    if live.done.done():
        return
    if isinstance(live.body, Abandonable):
        live.note("abandoned")
        await live.finish(live.body.abandon())
        return
    if live.state is WorkerState.STARTING:
        live.note("init_forced")
    else:
        await live.insist(w.order_kill)
    live.was_forced = True
    await _forced(live)


async def _forced(live: Live) -> None:
    """What never came to be has nobody else to report its end."""
    if live.spawning is not None and not live.spawning.done():
        live.spawning.cancel()
        await tried(live, live.body.force(), "force")
        await live.finish(Exit(Ending.SIGNALLED, _SIGKILL))
    while not live.done.done():
        await tried(live, live.body.force(), "force")
        await done_within(live.tree.clock, _FORCE_AGAIN_S, live.done)


async def tried(
    live: Live, doing: Coroutine[Any, Any, None], what: str, limit_s: float = _ACT_S
) -> None:
    """A body that answers with an error, or not at all, is not waited for."""
    acting = asyncio.ensure_future(doing)
    try:
        if not await done_within(live.tree.clock, limit_s, acting, live.done):
            _log.warning("%s of %s did not come back", what, live.id)
        elif acting.done():
            acting.result()
    except Exception:
        _log.exception("%s of %s failed", what, live.id)
    finally:
        acting.cancel()
