"""What must hold of every instance and every step of its life, however they were made."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from detent.lifecycle.event import Event
from detent.lifecycle.life import broken_life
from detent.lifecycle.worker.record import Instance
from detent.lifecycle.worker.table import WORKER, WorkerState

_S = WorkerState
_BEFORE_START = (_S.CREATED, _S.PENDING, _S.STARTING)
_AFTER_START = (_S.RUNNING, _S.SUSPENDED, _S.STOPPING, _S.FINISHED, _S.KILLED)


def faults(instance: Instance) -> tuple[str, ...]:
    """The rules that this record breaks; none, if it is sound."""
    return tuple(rule for rule, holds in _RULES.items() if not holds(instance))


def broken(before: Instance | None, event: Event, after: Instance) -> str | None:
    """The first rule that this step breaks, as a sentence, or `None`."""
    found = broken_life(WORKER, before, event, after)
    return found or _changed_wrongly(before, after) or next(iter(faults(after)), None)


def _changed_wrongly(before: Instance | None, after: Instance) -> str | None:
    """What no single record can show: a grace that grew, a process that became another."""
    if before is None:
        return None
    known, now = before.force_at, after.force_at
    if known is not None and (now is None or now > known):
        return "the grace never grows"
    if before.pid is not None and (after.pid, after.process_at) != (before.pid, before.process_at):
        return "an instance is one process for life"
    return None


def _times_agree(one: Instance) -> bool:
    times = (one.created_at, one.state_at, one.updated_at, one.last_at)
    return all(earlier <= later for earlier, later in pairwise(times))


def _started_when_it_should(one: Instance) -> bool:
    if one.state in _BEFORE_START:
        return one.started_at is None
    return one.started_at is not None or one.state not in _AFTER_START


def _resumed_after_start(one: Instance) -> bool:
    if one.resumed_at is None:
        return True
    return one.started_at is not None and one.started_at <= one.resumed_at


def _ended_when_it_should(one: Instance) -> bool:
    if one.state.is_terminal:
        return one.ended_at == one.state_at and one.cause is not None
    return one.ended_at is None and one.exit_code is None


def _asked_when_it_should(one: Instance) -> bool:
    if one.state in (_S.STOPPING, _S.KILLED):
        return one.stop_requested
    unasked = (_S.CREATED, _S.PENDING, _S.RUNNING, _S.SUSPENDED, _S.FINISHED)
    return not (one.stop_requested and one.state in unasked)


def _killed_when_it_should(one: Instance) -> bool:
    if one.state is _S.KILLED:
        return one.killed
    return not one.killed or one.state is _S.STOPPING


_RULES: dict[str, Callable[[Instance], bool]] = {
    "version counts events from 1": lambda one: one.version >= 1,
    "created <= state <= updated <= last": _times_agree,
    "started_at is set by entering running, and only by that": _started_when_it_should,
    "resumed_at never precedes started_at": _resumed_after_start,
    "ended_at and cause are set exactly in a terminal state": _ended_when_it_should,
    "a governor holds exactly what is pending": lambda one: (
        (one.governor is not None) == (one.state is _S.PENDING)
    ),
    "only what is pending is due": lambda one: one.due_at is None or one.state is _S.PENDING,
    "a stop was asked for where the state says so": _asked_when_it_should,
    "the killed flag is raised only while stopping": _killed_when_it_should,
    "a process is a pid and its birth": lambda one: (one.pid is None) == (one.process_at is None),
    "health is known only while running": lambda one: (
        one.health == "unknown" or one.state is _S.RUNNING
    ),
}
