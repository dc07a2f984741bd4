"""Why a job is where it is, and what can be paused, in the words of an app."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict

import msgspec

from detent.app.waiting import moment
from detent.engine.hurdles import Verdict
from detent.engine.queries import Why


class Obstacle(msgspec.Struct, frozen=True):
    """One condition that a waiting job must meet; `is_met` is `None` where nobody can tell."""

    name: str
    is_met: bool | None
    says: str
    clears_at: datetime | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is: `answer` in one sentence, and all that a waiting one waits for.

    `expected_at` is when it may start, if everything in its way clears by itself.
    """

    id: str
    state: str
    answer: str
    is_waiting: bool
    obstacles: tuple[Obstacle, ...] = ()
    expected_at: datetime | None = None

    def __str__(self) -> str:
        return self.answer


def explained(why: Why) -> Explanation:
    """The same as the engine says it, for people."""
    met = {Verdict.PASS: True, Verdict.FAIL: False, Verdict.UNKNOWN: None}
    return Explanation(
        id=why.job.id,
        state=why.job.state.value,
        answer=why.answer,
        is_waiting=why.is_waiting,
        obstacles=tuple(
            Obstacle(one.name, met[one.verdict], one.says, _moment(one.clears_at))
            for one in why.hurdles
        ),
        expected_at=_moment(why.expected_at),
    )


def _moment(at: int | None) -> datetime | None:
    return None if at is None else moment(at)


class Gated(TypedDict, total=False):
    """What is paused: all jobs of a queue, or all of a type."""

    queue: str
    type: str
    tenant: str
