"""What all supervisors of one tree share: journal, clock, chance, numbers, and who listens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random, SystemRandom
from uuid import uuid4

from detent.errors import BadJournal
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.worker import Accepted, Instance, Order
from detent.runtime.supervisor.clock import Clock, SystemClock
from detent.runtime.supervisor.entries import Note
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.metrics import PREFIX, Metrics, harmless

_log = logging.getLogger("detent.supervisor")
_US = 1_000_000


class Tree:
    """The one way into the journal, for every supervisor of a process."""

    def __init__(
        self,
        journal: Journal,
        *,
        name: str = "supervisor",
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.journal = journal
        self.name = name
        self.clock = clock or SystemClock()
        self.metrics = harmless(metrics)
        self.chance: Random = SystemRandom()
        self.illegal = 0
        """Moves that were asked for and refused."""
        self.ended_twice = 0
        """Ends that were reported again and ignored."""
        self.sick_slots = 1
        """How many more may be stopped for looking sick: a starved host makes all look so."""
        self._listeners: set[Callable[[], None]] = set()

    def order(self, by: By | None = None, *, is_slot_ready: bool = True) -> Order:
        """An order given now, by the supervisor itself unless somebody else is named."""
        by = by or By(Actor.SYSTEM, self.name)
        return Order(self.clock.now(), by, str(uuid4()), is_slot_ready)

    def enter(self, before: Instance | None, accepted: Accepted) -> Instance:
        """Write the move down. Only when it is on the disk may anybody act on it."""
        after = accepted.instance
        self.journal.append(after, accepted.events, self.clock.monotonic())
        if before is not None and before.state is not after.state:
            self._measure(before, after)
        return after

    def note(self, note: Note) -> None:
        """Write down something about a slot, if that is possible, and tell everybody."""
        try:
            self.journal.note(note, self.clock.now(), self.clock.monotonic())
        except BadJournal:
            _log.exception("the note %s about %s is lost", note.name, note.slot)
        self.tell()

    def refuse(self, record: Instance, refusal: Refusal) -> None:
        """Count and log what was refused; the worker goes on as it was."""
        self.illegal += 1
        self.count("illegal_transitions_total")
        _log.warning("refused for %s of slot %s: %s", record.id, record.slot, refusal.message)

    def tell(self) -> None:
        """Wake everybody who follows the journal."""
        for listener in tuple(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call it after every entry; answers how to be forgotten again."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    @property
    def listeners(self) -> int:
        """How many follow the journal now."""
        return len(self._listeners)

    def count(self, name: str, **labels: str) -> None:
        """One more of these, for the collector."""
        self.metrics.count(PREFIX + name, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """One value, for the collector."""
        self.metrics.observe(PREFIX + name, value, labels)

    def _measure(self, before: Instance, after: Instance) -> None:
        spent = (after.state_at - before.state_at) / _US
        self.observe("state_seconds", spent, state=before.state)
        if after.ended_at is None:
            return
        self.count("exits_total", status=after.state, cause=str(after.cause))
        if after.started_at is not None:
            lived = (after.ended_at - after.started_at) / _US
            self.observe("worker_duration_seconds", lived)
        if before.force_at is not None and before.force_at > before.state_at:
            share = (after.ended_at - before.state_at) / (before.force_at - before.state_at)
            self.observe("worker_shutdown_duration_seconds", spent)
            self.observe("grace_used_ratio", share)


def settle(future: asyncio.Future[Instance], record: Instance) -> None:
    """Wake every waiter with the end, once."""
    if not future.done():
        future.set_result(record)
