"""What every command does to every profile in every state, asked of `decide` itself.

Nothing here states a rule: the cells are its answers about specimen jobs, so that the documentation
cannot say anything else than the code does.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from detent.lifecycle.event import By
from detent.lifecycle.job import commands as c
from detent.lifecycle.job.deciding import decide
from detent.lifecycle.job.record import Accepted, Context, Job, Lease, Unchanged
from detent.lifecycle.job.table import ENDED, IN_HANDS, TIMED, JobState
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, Delivery
from detent.lifecycle.retry import Verdict

_NOW = 1_000_000_000
_ALIVE = Lease(_NOW * 2)
_TRY_AGAIN = Verdict(retry=True, delay_us=1_000_000, cause=None)
_LOST = Lease(0, lost=True)
_USER = By(Actor.USER, "someone")
_WORKER = By(Actor.WORKER, "worker")
_SYSTEM = By(Actor.SYSTEM, "detent")

_ASKED: tuple[tuple[Any, By], ...] = (
    (c.Claim("lease", "worker"), _WORKER),
    (c.Dispatch("lease", "worker"), _SYSTEM),
    (c.Acknowledge(lease="lease"), _WORKER),
    (c.Receive(lease="lease", start_us=1), _WORKER),
    (c.Complete(lease="lease"), _WORKER),
    (c.Fail(lease="lease", code="error"), _WORKER),
    (c.Refuse(lease="lease", code="busy"), _WORKER),
    (c.Snooze(lease="lease", delay_us=1), _WORKER),
    (c.HandBack(lease="lease"), _WORKER),
    (c.HandBack(), _SYSTEM),
    (c.Lose(), _SYSTEM),
    (c.Cancel(), _USER),
    (c.Cancel(force=True), _SYSTEM),
    (c.ConfirmCancel(lease="lease"), _WORKER),
    (c.Hold(), _USER),
    (c.Activate(), _USER),
    (c.Reprioritise(5), _USER),
    (c.Reschedule(_NOW * 3), _USER),
    (c.Move("other"), _USER),
    (c.Checkpoint(lease="lease", digest="d"), _WORKER),
    (c.Checkpoint(digest="d"), _USER),
    (c.Annotate("d"), _USER),
    (c.Drop(), _SYSTEM),
    (c.Erase(), _USER),
)


class Cell(msgspec.Struct, frozen=True):
    """One answer: the events of one commit, or why not."""

    profile: str
    state: str
    cancelling: bool
    command: str
    actor: str
    events: tuple[str, ...] = ()
    ends_in: str | None = None
    refused: str | None = None


def matrix() -> tuple[Cell, ...]:
    """Every profile x state x command, in the order of the tables."""
    return tuple(
        _ask(_specimen(profile, state, cancelling), command, by)
        for profile in PROFILES
        for state, cancelling in (*((state, False) for state in JobState), (JobState.ACTIVE, True))
        for command, by in _ASKED
    )


def _ask(job: Job, command: Any, by: By) -> Cell:
    lease = _LOST if isinstance(command, c.Lose) else _ALIVE
    answer = decide(job, command, _NOW, Context(by, "matrix", 1, lease, verdict=_TRY_AGAIN))
    cancelling = job.cancel_at is not None
    cell = Cell(job.profile, job.state, cancelling, type(command).__name__, by.kind)
    if isinstance(answer, Accepted):
        names = tuple(str(event.name) for event in answer.events)
        return replace(cell, events=names, ends_in=answer.job.state)
    if isinstance(answer, Unchanged):
        return replace(cell, ends_in=job.state)
    return replace(cell, refused=answer.code)


def _specimen(name: str, state: JobState, cancelling: bool) -> Job:
    """A first-attempt job of that profile standing in that state, made without going there."""
    profile = PROFILES[name]
    held, ended = state in IN_HANDS, state in ENDED
    return Job(
        tenant="",
        id="specimen",
        version=1,
        state=state,
        profile=name,
        queue="default",
        priority=0,
        delivery=Delivery.PUSH if state is JobState.PENDING else profile.delivery,
        allowed=profile.allowed,
        losses_allowed=profile.losses_allowed,
        created_at=0,
        state_at=0,
        last_at=0,
        place=1,
        ready_at=0,
        attempt=int(held or ended),
        run_at=_NOW * 2 if state in TIMED else None,
        lease="lease" if held else None,
        holder="worker" if held else None,
        claimed_at=0 if held else None,
        started_at=0 if held else None,
        ended_at=0 if ended else None,
        cause="requested" if ended else None,
        cancel_at=0 if cancelling else None,
        force_at=_NOW * 2 if cancelling else None,
    )
