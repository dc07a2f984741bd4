"""How a supervisor lives: it starts its slots in order, reacts to ends, and stops in reverse.

It has no lock and needs none: everything happens in one event loop, a move is one step, and work
on one slot never waits for another slot unless the strategy says that they belong together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from detent.errors import AlreadyStarted, BadJournal, SlotExists, StartFailed
from detent.lifecycle.worker import Cause, Ending, Exit, Instance, WorkerState
from detent.runtime.supervisor.backoff import Backoff
from detent.runtime.supervisor.breaker import Breaker, Circuit
from detent.runtime.supervisor.caring import Care
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.entries import Note
from detent.runtime.supervisor.grouping import Group
from detent.runtime.supervisor.instance import After, Live
from detent.runtime.supervisor.pacing import Pacing, Rate
from detent.runtime.supervisor.recovery import Remains, recover
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.spec import KEEPER, OnKilled, Spec, StartRate
from detent.runtime.supervisor.starting import build, launch
from detent.runtime.supervisor.stopping import stop, tried
from detent.runtime.supervisor.strategy import Strategy, is_restarted
from detent.runtime.supervisor.tasks import Tasks
from detent.runtime.supervisor.tree import Tree

_RETRY_S: Final = 0.2
_LAST_S: Final = 5.0
"""After force, how long an end may take to be written down before nobody waits for it any more."""
_WORDS_CHARS_MAX: Final = 300
_S = WorkerState
# An operator, or whoever else may send signals: the worker itself has done nothing wrong.
_FROM_OUTSIDE = (Cause.SIGKILL_EXTERNAL, Cause.EXTERNAL_SIGNAL)
_log = logging.getLogger("detent.supervisor")


class Plan(msgspec.Struct, frozen=True):
    """What holds for all slots of a supervisor together.

    `backoff` and `breaker` pace a group; siblings that are independent have their own. `shutdown_s`
    is what all children together may take to stop, whatever their own graces are.
    """

    strategy: Strategy = Strategy.ONE_FOR_ONE
    backoff: Backoff = Backoff()
    breaker: Breaker | None = Breaker()
    rate: StartRate = StartRate()
    shutdown_s: float = 60.0


class Core:
    """The slots of one supervisor and what it does without being asked."""

    def __init__(
        self,
        tree: Tree,
        specs: Sequence[Spec] = (),
        plan: Plan | None = None,
        *,
        path: str = "",
        remains: Remains | None = None,
    ) -> None:
        self.tree = tree
        self.plan = plan or Plan()
        self.path = path
        self.tasks = Tasks(tree.metrics)
        self.rate = Rate(self.plan.rate, tree.clock)
        self.slots: dict[str, Slot] = {}
        self.lives: dict[Live, Slot] = {}
        """Every instance that has not ended, also one that another has replaced."""
        self.lost: list[Instance] = []
        """What the supervisor before this one left open."""
        self.phase = _S.CREATED
        self._first: set[Slot] = set()
        """Slots whose first start somebody waits for."""
        self._remains = remains
        self._pacing = Pacing(self.plan.backoff, self.plan.breaker, tree.clock, tree.chance)
        self._group = Group(self)
        self._care = Care(self)
        self._exit = Exit(Ending.RETURNED)
        self._ended: asyncio.Event = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None
        self._deadline = 0.0
        self._unwritten: set[Live] = set()
        """Those of which nothing is left but an end that the journal does not take."""
        self.is_forced = False
        """Whether stopping took longer than it may, so that all were killed."""
        self._shorter = asyncio.Event()
        for spec in specs:
            self.admit(spec)

    # --- its own life -------------------------------------------------------------------------

    async def start(self) -> None:
        """Fill every slot, in the order of the list; come back when each of them is ready.

        If one cannot be started, what was started is stopped again in reverse.
        """
        if self.phase is not _S.CREATED:
            raise AlreadyStarted(f"This supervisor is {self.phase}: it starts once. Make another")
        self.phase = _S.STARTING
        if not self.path:
            self.lost = await recover(self.tree, self._remains)
        for slot in self.slots.values():
            slot.look_back()
        try:
            await self._start_all()
        except BaseException:
            await self.stop()
            raise
        if self.is_open:
            self.phase = _S.RUNNING
            self.tree.tell()

    async def stop(self, budget_s: float | None = None) -> None:
        """Stop all children, last one first, each with its own grace; all within the budget.

        Said again, it joins; a shorter budget counts, a longer one does not.
        """
        if self.phase is _S.CREATED:
            self._close()
        if self.phase is _S.STOPPED:
            return
        budget_s = self.plan.shutdown_s if budget_s is None else budget_s
        deadline = self.tree.clock.monotonic() + budget_s
        if self._ending is None:
            self.phase, self._deadline = _S.STOPPING, deadline
            self.tree.tell()
            self._ending = asyncio.get_running_loop().create_task(self._stop_all())
        elif deadline < self._deadline:
            self._deadline = deadline
            self._shorter.set()
            if budget_s > 0:
                self._hasten(budget_s)
        await asyncio.shield(self._ending)

    async def wait(self) -> Exit:
        """How it ended, once it has; for any number of waiters."""
        await self._ended.wait()
        return self._exit

    def fail(self, code: str) -> None:
        """Give up: everything is stopped, and the end of this supervisor is a failure."""
        self._exit = Exit(Ending.RAISED, code=code)
        self.tasks.run(self.stop(), "giving up")

    @property
    def is_open(self) -> bool:
        """Whether it starts anything any more."""
        return self.phase in (_S.STARTING, _S.RUNNING)

    @property
    def is_group(self) -> bool:
        return self.plan.strategy.is_group

    # --- slots --------------------------------------------------------------------------------

    def admit(self, spec: Spec) -> Slot:
        """Take a slot into the list; nothing is started by that."""
        if spec.name in self.slots:
            raise SlotExists(
                f"There is a slot {spec.name!r} already. Remove or replace it", slot=spec.name
            )
        path = f"{self.path}/{spec.name}" if self.path else spec.name
        slot = Slot(self.tree, spec, path, self.pacing_of(spec))
        self.slots[spec.name] = slot
        return slot

    def pacing_of(self, spec: Spec) -> Pacing:
        """Its own, or that of the group it falls and rises with."""
        if self.is_group:
            return self._pacing
        return Pacing(spec.backoff, spec.breaker, self.tree.clock, self.tree.chance)

    async def bring_up(self, slot: Slot, *, urged: bool = False) -> Live:
        """Give the slot an instance; come back when that is ready, or has ended before."""
        async with slot.filling:
            if slot.live is not None and not slot.live.done.done():
                slot.live.is_urged |= urged
                slot.changed.set()
                return slot.live
            slot.is_awaited = True
            live = await self.born(slot, slot.spec)
            live.is_urged = urged
            slot.live, slot.is_awaited = live, False
        await launch(self, slot, live, slot.spec)
        return live

    def bring_up_soon(self, slot: Slot) -> asyncio.Task[Live]:
        """Bring the slot up in a task of its own."""
        slot.is_awaited = True
        return self.tasks.run(self.bring_up(slot), f"bringing up {slot.path}")

    async def born(self, slot: Slot, spec: Spec) -> Live:
        """A fresh instance that this supervisor answers for."""
        live = await build(self, slot, spec)
        self.lives[live] = slot
        return live

    async def stop_live(self, live: Live, grace_s: float, cause: Cause = Cause.REQUESTED) -> None:
        """Stop it even if that cannot be written down: it is tried until it can, or is over.

        Meanwhile it is asked all the same: a drain that nobody wrote down harms no job, and a kill
        after a grace that it has not heard of would.
        """
        ending: asyncio.Task[Exit] | None = None
        while not live.done.done() and live not in self._unwritten:
            try:
                await stop(live, self.tasks, grace_s, cause=cause)
            except BadJournal as error:
                if ending is None and live.exists.is_set():
                    _log.error("the stop of %s cannot be written down yet: %s", live.id, error)
                    ending = self.tasks.run(live.body.ended(), f"the end of {live.id}")
                    await tried(live, live.body.ask(grace_s), "ask")
                await done_within(self.tree.clock, _RETRY_S, live.done)
                if ending is not None and ending.done() and not self.is_open:
                    _log.error("%s has ended; the next supervisor will write that down", live.id)
                    self._unwritten.add(live)

    # --- what starting tells us ---------------------------------------------------------------

    def may_start(self, slot: Slot) -> bool:
        """Whether the slot is still there, wanted, and this supervisor not stopping."""
        return self.is_open and slot.is_wanted and self.slots.get(slot.name) is slot

    def has_begun(self, slot: Slot, live: Live) -> None:
        """It is ready: from now on it is looked after."""
        self.tree.count("workers_started_total", type=slot.spec.kind)
        self._care.take(slot, live)

    def has_ended(self, slot: Slot, live: Live) -> None:
        """The policy first, then the strategy; an end that we asked for triggers neither."""
        self.lives.pop(live, None)
        record = live.record
        slot.last = record
        expected = record.stop_requested or not self.is_open
        level = logging.DEBUG if expected else logging.WARNING
        how = f"{record.state} ({record.cause}){_last_words(live)}"
        _log.log(level, "%s of %s %s", live.id, slot.path, how)
        word = "failed" if record.state is _S.FAILED else "stopped"
        self.tree.count(f"workers_{word}_total", type=slot.spec.kind)
        if slot.live is not live:
            return
        slot.live = None
        if not self.may_start(slot) or live.after is After.GROUP or self._group.cares_for(slot):
            return
        if slot in self._first and record.started_at is None:
            return  # The first start fails as a whole, and says so itself.
        self._react(slot, live)

    def _react(self, slot: Slot, live: Live) -> None:
        match live.after:
            case After.AGAIN if live.is_failing:
                self._fell(slot, live)
            case After.AGAIN:
                self.bring_up_soon(slot)
            case After.DOWN:
                slot.is_wanted = False
            case After.POLICY if not is_restarted(slot.spec, live.record):
                self._give_up(slot, live)
            case After.POLICY if live.record.stop_requested:
                self.bring_up_soon(slot)
            case _:
                self._fell(slot, live)

    def _give_up(self, slot: Slot, live: Live) -> None:
        slot.is_wanted, slot.is_given_up = False, live.state is _S.FAILED
        if live.state is _S.KILLED and slot.spec.on_killed is OnKilled.ALERT:
            _log.error("%s of %s had to be killed", live.id, slot.path)
        live.note("not_restarted")

    def _fell(self, slot: Slot, live: Live) -> None:
        """One more restart that nobody asked for: wait, perhaps for long, perhaps together."""
        self._pace(slot, live)
        if not self.may_start(slot):
            return
        if self.is_group and not live.is_failing:
            self._group.fell(slot)
        else:
            self.bring_up_soon(slot)

    def _pace(self, slot: Slot, live: Live) -> None:
        """Count a restart that nobody asked for, and have the next start wait for it."""
        before = slot.pacing.gauge.circuit
        delay = slot.pacing.fell(live.uptime_s)
        whose = self.path or "supervisor"
        self.tree.count("worker_restarts_total", supervisor=whose, child=slot.path)
        strategy = self.plan.strategy
        self.tree.count("supervisor_restarts_total", supervisor=whose, strategy=strategy)
        self.tree.observe("backoff_triggered_seconds", delay, child=slot.path)
        if slot.pacing.gauge.circuit is Circuit.OPEN:
            self._opened(slot, live, before)

    def _opened(self, slot: Slot, live: Live, before: Circuit) -> None:
        live.note("breaker_open", f"was {before}")
        self.tree.count("supervisor_circuit_breaker_triggered_total", child=slot.path)
        _log.error("the breaker of %s is open: it ended too often", slot.path)
        if slot.pacing.breaker is not None and slot.pacing.breaker.escalate:
            self.fail("breaker_open")
            self.phase = _S.STOPPING

    # --- starting and stopping all --------------------------------------------------------------

    async def _start_all(self) -> None:
        waited: dict[asyncio.Task[Live], Slot] = {}
        for slot in tuple(self.slots.values()):
            bringing = self.bring_up_soon(slot)
            if _is_scheduled(slot, self.tree.clock.now()):
                continue
            waited[bringing] = slot
            self._first.add(slot)
            if self.is_group:
                await self._await_first(waited)
            else:
                # Let it come as far as its spawn before the next one begins.
                await asyncio.sleep(0)
        while waited:
            await self._await_first(waited)

    async def _await_first(self, waited: dict[asyncio.Task[Live], Slot]) -> None:
        """The next that is ready leaves the list; one that cannot be is an error.

        One that was ended by a signal from outside is no such one: it is tried again after a while.
        """
        done, _ = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            slot, live = waited.pop(task), task.result()
            has_failed = live.record.started_at is None and not live.record.stop_requested
            is_killed = has_failed and live.record.cause in _FROM_OUTSIDE
            if is_killed and self.may_start(slot) and is_restarted(slot.spec, live.record):
                self._pace(slot, live)
                waited[self.bring_up_soon(slot)] = slot
                continue
            self._first.discard(slot)
            if has_failed:
                raise self.start_failed(slot, live)

    async def _stop_all(self) -> None:
        stopping = self.tasks.run(self._stop_in_order(), "stopping all")
        clock = self.tree.clock
        while not stopping.done() and (left := self._deadline - clock.monotonic()) > 0:
            shorter = asyncio.ensure_future(self._shorter.wait())
            await done_within(clock, left, stopping, shorter)
            shorter.cancel()
            self._shorter.clear()
        if not stopping.done():
            self.is_forced = True
            await self._force_all(stopping)
        await self.tasks.close()
        self._close()

    async def _stop_in_order(self) -> None:
        """Siblings that build on each other go one by one; independent ones drain side by side."""
        order = {slot: place for place, slot in enumerate(self.slots.values())}
        while lives := [one for one in self.lives.items() if one[0] not in self._unwritten]:
            latest = sorted(lives, key=lambda one: -order.get(one[1], len(order)))
            if self.is_group:
                latest = latest[:1]
            # Whoever serves the others is there until they are gone.
            latest = [one for one in latest if one[1].spec.role != KEEPER] or latest
            # Whoever is told of more time than there is would be killed in the middle of its drain.
            left_s = max(self._deadline - self.tree.clock.monotonic(), 0.0)
            stops = [
                self.stop_live(live, min(slot.spec.stop_grace_s, left_s)) for live, slot in latest
            ]
            await asyncio.gather(*stops)
            # The end is heard one turn later.
            await asyncio.sleep(0)

    def _hasten(self, left_s: float) -> None:
        """Tell those that are on their way out; who has not been asked yet hears it then."""
        for live in tuple(self.lives):
            if live.ladder is not None:
                self.tasks.run(self.stop_live(live, left_s), f"hastening {live.id}")

    async def _force_all(self, stopping: asyncio.Task[None]) -> None:
        """No time is left: everything that still lives is forced at once, written down or not."""
        await asyncio.gather(*(self._force(live) for live in tuple(self.lives)))
        if not await done_within(self.tree.clock, _LAST_S, stopping):
            left = ", ".join(sorted(slot.path for slot in self.lives.values()))
            _log.error("forced, but the end of %s is not known, or not written down", left)

    async def _force(self, live: Live) -> None:
        forcing = asyncio.ensure_future(stop(live, self.tasks, 0))
        try:
            await done_within(self.tree.clock, _LAST_S, forcing, live.done)
            if forcing.done():
                forcing.result()
        except BadJournal:
            await live.body.force()
        finally:
            forcing.cancel()

    def _close(self) -> None:
        self.phase = _S.STOPPED
        self.tree.tell()
        self._ended.set()

    def start_failed(self, slot: Slot, live: Live) -> StartFailed:
        """Why it did not come up, with the last lines that it wrote."""
        record, said = live.record, [*_unspawned(live), *live.body.tail(20)]
        why = ", ".join(filter(None, (record.status, record.cause, record.code)))
        told = "\n".join(["", *said]) if said else ""
        return StartFailed(
            f"The worker in slot {slot.path} could not be started ({why}).{told}",
            slot=slot.path,
            status=record.status,
            cause=str(record.cause),
            error_code=record.code,
            exit_code=record.exit_code,
        )

    def note(self, slot: Slot, name: str, reason: str | None = None) -> None:
        """Write down something about a slot."""
        self.tree.note(Note(slot.path, name, reason=reason))


def _last_words(live: Live) -> str:
    """What it wrote last is often why: nobody should have to look for its log first."""
    if why := _unspawned(live):
        return f": {why[0][:_WORDS_CHARS_MAX]}"
    said = [line.strip() for line in live.body.tail(5) if line.strip()]
    return f"; it wrote last: {said[-1][:_WORDS_CHARS_MAX]}" if said else ""


def _unspawned(live: Live) -> list[str]:
    """Why there is nothing that could have written anything."""
    spawning = live.spawning
    if spawning is None or not spawning.done() or spawning.cancelled():
        return []
    error = spawning.exception()
    return [] if error is None else [str(error)]


def _is_scheduled(slot: Slot, now: int) -> bool:
    return slot.spec.start_at is not None and slot.spec.start_at > now
