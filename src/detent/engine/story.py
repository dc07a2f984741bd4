"""The life of a job in a few words: how long it was where, and what it came to. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from detent.engine.telling import counted, told_span
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job, JobState
from detent.lifecycle.job.table import ENDED, IN_HANDS


class Stay(msgspec.Struct, frozen=True):
    """The time a job spent in one state: how it got there, and until when; `None` is until now."""

    state: str
    since: int
    until: int | None
    entered_by: str
    actor: str
    actor_id: str = ""
    reason: str | None = None


class Story(msgspec.Struct, frozen=True):
    """Where it was, for how long altogether, and one sentence about it."""

    stays: tuple[Stay, ...]
    waiting_us: int
    working_us: int
    sentence: str


def story_of(job: Job, history: Sequence[Event], now: int) -> Story:
    """What its history says about the job, as of now."""
    moves = [event for event in history if event.target is not None]
    leaves: list[int | None] = [event.at for event in moves[1:]]
    stays = tuple(map(_stay, moves, [*leaves, None]))
    working = _spent(stays, now, in_hands=True)
    waiting = _spent(stays, now, in_hands=False)
    return Story(stays, waiting, working, _sentence(job, waiting, working))


def _stay(event: Event, until: int | None) -> Stay:
    state = event.target or ""
    return Stay(state, event.at, until, event.name, event.actor, event.actor_id, event.reason)


def _spent(stays: Sequence[Stay], now: int, *, in_hands: bool) -> int:
    mine = [one for one in stays if one.state not in ENDED and (one.state in IN_HANDS) is in_hands]
    return sum(max((now if one.until is None else one.until) - one.since, 0) for one in mine)


def _sentence(job: Job, waiting: int, working: int) -> str:
    times = f"{told_span(waiting)} waiting, {told_span(working)} working"
    return f"{_standing(job)}{_troubles(job)}; {times}."


def _standing(job: Job) -> str:
    if job.ended_at is None:
        held = ", held" if job.held else ""
        asked = ", asked to stop" if job.cancel_at is not None else ""
        on = f" on attempt {job.attempt}" if job.attempt else ""
        return f"{job.state.value.capitalize()}{on}{held}{asked}"
    on = f" on attempt {job.attempt}" if job.attempt else " before its first attempt"
    why = "" if job.state is JobState.COMPLETED else f" ({job.cause})"
    return f"{job.state.value.capitalize()}{on}{why}"


def _troubles(job: Job) -> str:
    told = (("failure", job.failures), ("loss", job.losses), ("hand-back", job.handed_back))
    some = [counted(number, word) for word, number in told if number]
    # English has one word here that does not just take an s.
    said = ", ".join(some).replace("losss", "losses")
    return f" after {said}" if said else ""
