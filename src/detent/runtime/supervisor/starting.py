"""Bringing an instance up: held by its governors, started, spawned, and proven ready."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from detent.errors import BadJournal, DetentError
from detent.lifecycle import worker as w
from detent.lifecycle.worker import Ending, Exit, Governor, WorkerState
from detent.runtime.supervisor.body import Waiting
from detent.runtime.supervisor.clock import Patience, done_within
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.pacing import Held, Rate
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.spec import Spec
from detent.runtime.supervisor.stopping import give_up_init, tried
from detent.runtime.supervisor.tasks import Tasks

_log = logging.getLogger("detent.supervisor")
_US: Final = 1_000_000
_RETRY_S: Final = 1.0
_LOOK_S: Final = 60.0
"""So often the time of day is looked at again: the clock may have been set."""
_SAME_S: Final = 0.1


class Host(Protocol):
    """What starting needs of the supervisor it is done for."""

    tasks: Tasks
    rate: Rate

    def may_start(self, slot: Slot) -> bool:
        """Whether the slot is still there, wanted, and its supervisor not stopping."""
        ...

    def has_begun(self, slot: Slot, live: Live) -> None:
        """It is ready: from now on it is looked after."""
        ...

    def has_ended(self, slot: Slot, live: Live) -> None:
        """The instance has ended, with all of its session."""
        ...


async def build(host: Host, slot: Slot, spec: Spec) -> Live:
    """A fresh instance whose end will be heard; a journal that is full is waited for."""
    clock = slot.tree.clock
    while True:
        try:
            live = slot.build(spec)
            break
        except BadJournal:
            _log.exception("no instance of %s can be written down yet", slot.path)
            await clock.sleep(_RETRY_S)
    live.done.add_done_callback(lambda _: host.has_ended(slot, live))
    return live


async def launch(host: Host, slot: Slot, live: Live, spec: Spec) -> None:
    """Come back when it is ready, or has ended without ever being so."""
    while not live.done.done():
        try:
            await _govern(host, slot, live, spec)
            if not live.done.done():
                await _start(host, slot, live, spec)
        except BadJournal as error:
            _log.error("the start of %s cannot be written down yet: %s", slot.path, error)
            await slot.tree.clock.sleep(_RETRY_S)
        if live.state not in (WorkerState.CREATED, WorkerState.PENDING):
            return


async def _govern(host: Host, slot: Slot, live: Live, spec: Spec) -> None:
    """Hold it for as long as anything says so; whoever looks sees what, and until when."""
    clock, known = slot.tree.clock, None
    while host.may_start(slot) and (held := _held(host, slot, live, spec)) and not live.done.done():
        left = held.due - clock.monotonic()
        if known is None or _differs(held, known):
            live.move(w.hold, held.governor, clock.now() + round(left * _US))
            known = held
        changed = asyncio.ensure_future(slot.changed.wait())
        try:
            await done_within(clock, min(left, _LOOK_S), live.done, changed)
        finally:
            changed.cancel()
        slot.changed.clear()


def _differs(held: Held, known: Held) -> bool:
    """Two clocks that are read one after the other are never quite as far apart as before."""
    return held.governor is not known.governor or abs(held.due - known.due) > _SAME_S


def _held(host: Host, slot: Slot, live: Live, spec: Spec) -> Held | None:
    clock = slot.tree.clock
    if live.is_urged:
        return host.rate.held()
    if spec.start_at is not None and (early := spec.start_at - clock.now()) > 0:
        return Held(Governor.SCHEDULE, clock.monotonic() + early / _US)
    return slot.pacing.held() or host.rate.held()


async def _start(host: Host, slot: Slot, live: Live, spec: Spec) -> None:
    if not host.may_start(slot):
        live.move(w.stop)
        return
    handover = slot.hand_over(live)
    live.move(w.start)
    host.rate.took()
    if slot.pacing.tried():
        # A start by hand is the trial too: nothing else would ever close the breaker again.
        live.note("breaker_half_open")
    patience = Patience(slot.tree.clock, spec.init_timeout_s)
    live.spawning = host.tasks.run(live.body.spawn(handover), f"spawning {live.id}")
    if await _spawned(host, live, patience):
        await _prove(host, slot, live, patience)


async def _spawned(host: Host, live: Live, patience: Patience) -> bool:
    spawning = live.spawning
    assert spawning is not None  # noqa: S101 - set by the only caller
    await patience.lasts_until(spawning, live.done)
    if live.done.done():
        return False
    if not spawning.done():
        await give_up_init(live)
        return False
    if spawning.cancelled() or spawning.exception() is not None:
        live.tree.count("processes_failed_total")
        await live.finish(Exit(Ending.UNSPAWNED, code=_code(spawning)))
        return False
    if (born := spawning.result()) is not None:
        await live.insist(w.spawned, born.pid, born.process_at)
    live.exists.set()
    live.proving = host.tasks.run(live.body.ready(), f"readiness of {live.id}")
    host.tasks.run(_watch(live), f"watching {live.id}")
    live.tree.count("processes_started_total")
    return True


def _code(spawning: asyncio.Task[object]) -> str:
    error = None if spawning.cancelled() else spawning.exception()
    if not isinstance(error, DetentError):
        return type(error).__name__
    return str(error.fields.get("error_code") or error.code)


async def _watch(live: Live) -> None:
    """The one who sees the end. What it had said before it ended, it has said."""
    seen = await _seen(live)
    await _own_up(live)
    await live.finish(seen)


async def _seen(live: Live) -> Exit:
    """How it ended; what nobody can see any more is ended for sure, and counts as a failure."""
    try:
        return await live.body.ended()
    except Exception as error:
        _log.exception("the end of %s cannot be seen", live.id)
        await tried(live, live.body.force(), "force")
        return Exit(Ending.RAISED, code=type(error).__name__)


async def _own_up(live: Live) -> None:
    """Ready, if it is proven; a stop that can be written down before that comes first."""
    await live.insist(w.ready, so_long_as=lambda: _is_proven(live))


def _is_proven(live: Live) -> bool:
    """Whether it has said so in time, and before anybody wanted it gone."""
    proving, is_unwanted = live.proving, live.record.stop_requested or live.timed_out
    if live.state is not WorkerState.STARTING or is_unwanted or proving is None:
        return False
    return proving.done() and not proving.cancelled() and proving.exception() is None


def _waits(live: Live) -> bool:
    """Whether it only waits for somebody else, such as a database that is away."""
    return isinstance(live.body, Waiting) and live.body.waits


async def _prove(host: Host, slot: Slot, live: Live, patience: Patience) -> None:
    proving = live.proving
    assert proving is not None  # noqa: S101 - set by the only caller
    await patience.lasts_until(proving, live.done, spared=lambda: _waits(live))
    await _own_up(live)
    if live.state is WorkerState.STARTING and not live.record.stop_requested:
        await give_up_init(live)
    proving.cancel()
    if live.state is WorkerState.RUNNING:
        host.has_begun(slot, live)
