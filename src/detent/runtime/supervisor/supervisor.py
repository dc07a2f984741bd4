"""What can be asked of a supervisor, by the name of a slot: `w1`, or `branch/w1` further down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from detent.errors import BadJournal, BadSpec, DetentError, StartFailed, UnknownSlot
from detent.lifecycle import worker as w
from detent.lifecycle.event import By
from detent.lifecycle.worker import Cause, Health, WorkerState
from detent.runtime.supervisor.core import Core
from detent.runtime.supervisor.events import Change, follow
from detent.runtime.supervisor.instance import After, Live
from detent.runtime.supervisor.probing import is_well
from detent.runtime.supervisor.recycling import swap
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.snapshot import Snapshot, of_slot
from detent.runtime.supervisor.spec import Probe, Spec
from detent.runtime.supervisor.stopping import stop
from detent.runtime.supervisor.suspending import SUSPEND_S, resume, suspend

_S = WorkerState


class Quieted(msgspec.Struct, frozen=True):
    """How suspending (or resuming) many went: `suspended` is all, some or none of them."""

    suspended: str
    errors: dict[str, DetentError]


@runtime_checkable
class _Branch(Protocol):
    """A body that is a supervisor of its own."""

    inner: Supervisor | None


class Supervisor(Core):
    """A tree of slots, and the verbs for each of them. Nothing here blocks another slot."""

    # --- one slot -----------------------------------------------------------------------------

    async def stop_slot(
        self, name: str, grace_s: float | None = None, *, by: By | None = None
    ) -> None:
        """Take the slot down, and keep it down. Said again, it joins, and may shorten the grace."""
        core, slot = self.find(name)
        was_wanted, slot.is_wanted, slot.is_given_up = slot.is_wanted, False, False
        grace_s = slot.spec.stop_grace_s if grace_s is None else grace_s
        try:
            await asyncio.gather(*(core.halt(live, grace_s, by) for live in core.lives_of(slot)))
        except BadJournal:
            # Nothing was done: it is looked after as before.
            slot.is_wanted = was_wanted
            raise

    async def kill(self, name: str, *, by: By | None = None) -> None:
        """Force the instance now; whether another follows, the policy and `on_killed` say."""
        core, slot = self.find(name)
        live = self._live(slot)
        await stop(live, core.tasks, 0, by=by)

    async def start_slot(self, name: str) -> None:
        """Bring a slot up that is down, at once; one that is held back is let go.

        Neither schedule, backoff nor breaker holds what somebody asks for by name.
        """
        core, slot = self.find(name)
        await core.tasks.kept(core.fill(slot), f"starting {slot.path}")

    async def restart(self, name: str, grace_s: float | None = None) -> None:
        """Stop the instance and start another, at once; the policy is not asked."""
        core, slot = self.find(name)
        grace_s = slot.spec.stop_grace_s if grace_s is None else grace_s
        await core.tasks.kept(core.refill(slot, grace_s), f"restarting {slot.path}")

    async def suspend(
        self, name: str, within_s: float = SUSPEND_S, *, by: By | None = None
    ) -> None:
        """Let it go quiet, and come back when it is. It stays so across restarts."""
        core, slot = self.find(name)
        await suspend(slot, self._live(slot), core.tasks, within_s=within_s, by=by)

    async def resume(self, name: str, *, by: By | None = None) -> None:
        """Let it go on."""
        _, slot = self.find(name)
        await resume(slot, self._live(slot), by=by)

    def reset(self, name: str) -> None:
        """Close its breaker and forget its backoff: the fault is mended."""
        core, slot = self.find(name)
        slot.pacing.reset()
        core.note(slot, "breaker_reset")
        slot.changed.set()

    async def inspect(self, name: str, *, fresh: bool = False) -> Snapshot:
        """What is known of it; `fresh` asks the worker itself now."""
        core, slot = self.find(name)
        live = slot.live
        if fresh and live is not None and live.state is _S.RUNNING:
            well = await is_well(live, (slot.spec.probe or Probe()).timeout_s)
            if live.state is _S.RUNNING:
                live.move(w.change_health, Health.HEALTHY if well else Health.UNHEALTHY)
        return of_slot(slot, stopping=core.phase is _S.STOPPING)

    def tail(self, name: str, lines: int = 100) -> list[str]:
        """The last lines that its instance wrote."""
        _, slot = self.find(name)
        return [] if slot.live is None else slot.live.body.tail(lines)

    # --- which slots there are ------------------------------------------------------------------

    async def add(self, spec: Spec) -> None:
        """One more slot, started at once if the others are; if that fails, it is not there."""
        slot = self.admit(spec)
        self.tree.count("supervisor_add_total")
        if not self.is_open:
            return
        try:
            await self.tasks.kept(self._added(slot), f"adding {slot.path}")
        except asyncio.CancelledError:
            if self.slots.get(slot.name) is slot:
                self.forget(slot)
            for live in self.lives_of(slot):
                self.tasks.run(self.stop_live(live, spec.stop_grace_s), f"taking back {slot.path}")
            raise

    async def remove(self, name: str, grace_s: float | None = None) -> None:
        """Stop it and forget it, its resume id too; the others go on meanwhile."""
        core, slot = self.find(name)
        await core.stop_slot(slot.name, grace_s)
        if core.slots.get(slot.name) is slot:
            core.forget(slot)
            core.tree.count("supervisor_remove_total")

    async def replace(self, spec: Spec, *, patient: bool = True) -> None:
        """Other settings for a slot: the new instance first, then the old one goes.

        If the new one does not start, the old one and its settings stay. A slot that was given up
        after a failure is tried again; one that somebody has stopped stays down. Whoever is not
        `patient` does not wait until the old one is gone.
        """
        _, slot = self.find(spec.name)
        work = self._replaced(slot, spec, patient=patient)
        await self.tasks.kept(work, f"replacing {slot.path}")

    async def apply(self, specs: Sequence[Spec]) -> dict[str, DetentError]:
        """Make the slots those of a new list, one by one; answers what did not work.

        What fails leaves its slot as it was, and the others go on.
        """
        wanted = {spec.name: spec for spec in specs}
        if len(wanted) < len(specs):
            raise BadSpec("two slots of the new list have the same name", field="name")
        steps = [(name, self.remove(name)) for name in self.slots if name not in wanted]
        for name, spec in wanted.items():
            if name not in self.slots:
                steps.append((name, self.add(spec)))
            elif not spec.is_same(self.slots[name].spec):
                steps.append((name, self.replace(spec)))
        errors: dict[str, DetentError] = {}
        for name, step in steps:
            try:
                await step
            except DetentError as error:
                errors[name] = error
        # They start in the order of the list and stop in its reverse; who could not go comes last.
        order = {name: place for place, name in enumerate(wanted)}
        listed = sorted(self.slots.items(), key=lambda one: order.get(one[0], len(order)))
        self.slots = dict(listed)
        return errors

    # --- all slots ------------------------------------------------------------------------------

    async def suspend_all(self, within_s: float = SUSPEND_S) -> Quieted:
        """Last one first. One that will not go quiet is named; the others stay quiet."""
        errors: dict[str, DetentError] = {}
        for slot in reversed(tuple(self.slots.values())):
            if slot.live is not None and slot.live.record.suspendable:
                try:
                    await self.suspend(slot.name, within_s)
                except DetentError as error:
                    errors[slot.name] = error
        return Quieted(self._suspended(), errors)

    async def resume_all(self) -> Quieted:
        """First one first."""
        errors: dict[str, DetentError] = {}
        for slot in tuple(self.slots.values()):
            live = slot.live
            if live is not None and (slot.is_suspended or live.is_quieting):
                try:
                    await self.resume(slot.name)
                except DetentError as error:
                    errors[slot.name] = error
        return Quieted(self._suspended(), errors)

    def snapshot(self, name: str = "supervisor") -> Snapshot:
        """The whole tree at this moment."""
        stopping = self.phase is _S.STOPPING
        children = tuple(of_slot(slot, stopping=stopping) for slot in self.slots.values())
        return Snapshot(
            name=name,
            path=self.path,
            kind="supervisor",
            role="supervisor",
            status=self.phase.status,
            is_suspended=self._suspended() == "all",
            metadata=(("type", "supervisor"), ("strategy", self.plan.strategy)),
            children=children,
        )

    def watch(self, after: int | None = None) -> AsyncIterator[Change]:
        """First the tree as it is, then every entry of the journal behind it, without a hole."""
        return follow(self.tree, self.snapshot, after)

    # --- finding things -------------------------------------------------------------------------

    def find(self, name: str) -> tuple[Supervisor, Slot]:
        """The slot of that name, and the supervisor that it belongs to."""
        head, _, rest = name.partition("/")
        slot = self.slots.get(head)
        if slot is None:
            raise _unknown(name, self.path)
        if not rest:
            return self, slot
        body: object = None if slot.live is None else slot.live.body
        if not isinstance(body, _Branch) or body.inner is None:
            raise _unknown(name, self.path)
        return body.inner.find(rest)

    def lives_of(self, slot: Slot) -> list[Live]:
        """Its instance, and one that is on its way in or out."""
        return [live for live, its in self.lives.items() if its is slot]

    async def fill(self, slot: Slot) -> None:
        """Bring it up, whatever holds it back; come back when it is ready."""
        async with slot.busy:
            slot.is_wanted, slot.is_given_up = True, False
            await _emptied(slot)
            if self.slots.get(slot.name) is not slot:
                raise _unknown(slot.name, self.path)
            if not self.is_open:
                raise StartFailed(
                    f"Slot {slot.path} cannot be started: its supervisor is {self.phase}",
                    slot=slot.path,
                )
            live = await self.bring_up(slot, urged=True)
        record = live.record
        if live.done.done() and record.started_at is None and not record.stop_requested:
            raise self.start_failed(slot, live)

    async def _added(self, slot: Slot) -> None:
        self._first.add(slot)
        try:
            await self.fill(slot)
        except StartFailed:
            if self.slots.get(slot.name) is slot:
                self.forget(slot)
            raise
        finally:
            self._first.discard(slot)

    async def refill(self, slot: Slot, grace_s: float) -> None:
        """Stop what is there, and bring up another."""
        if slot.live is not None:
            slot.live.after = After.GROUP
            await self.stop_live(slot.live, grace_s)
        await self.fill(slot)

    async def _replaced(self, slot: Slot, spec: Spec, *, patient: bool) -> None:
        if slot.live is None or slot.live.done.done():
            slot.spec, slot.pacing = spec, self.pacing_of(spec)
            if slot.is_given_up and self.is_open:
                await self.fill(slot)
        else:
            failed = await swap(self, slot, spec, Cause.REQUESTED, patient=patient)
            if failed is not None:
                raise failed
        slot.pacing = self.pacing_of(spec)

    async def halt(self, live: Live, grace_s: float, by: By | None) -> None:
        """Stop it for good."""
        before, live.after = live.after, After.DOWN
        try:
            await stop(live, self.tasks, grace_s, by=by)
        except BadJournal:
            live.after = before
            raise

    def _live(self, slot: Slot) -> Live:
        if slot.live is None:
            raise UnknownSlot(
                f"Slot {slot.path} is down, so there is no worker to ask. Start it", slot=slot.path
            )
        return slot.live

    def forget(self, slot: Slot) -> None:
        """Strike it off the list, with what it kept."""
        self.tree.journal.drop_slot(slot.path)
        del self.slots[slot.name]
        self.note(slot, "removed")

    def _suspended(self) -> str:
        able = [
            slot.live.state is _S.SUSPENDED
            for slot in self.slots.values()
            if slot.live is not None and slot.live.record.suspendable
        ]
        return "none" if not any(able) else "all" if all(able) else "some"


async def _emptied(slot: Slot) -> None:
    """Whoever is on its way out goes first; what was to follow that, somebody has decided anew."""
    live = slot.live
    if live is not None and live.record.stop_requested and not live.done.done():
        live.after = After.GROUP
        await asyncio.shield(live.done)


def _unknown(name: str, path: str) -> UnknownSlot:
    where = f" below {path}" if path else ""
    return UnknownSlot(f"There is no slot {name!r}{where}", slot=name)
