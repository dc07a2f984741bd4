"""The verbs of an operator as values, so that one and many jobs are treated alike. Pure."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.stores.api import Stored


class RunNow(msgspec.Struct, frozen=True):
    """Make a job that waits for its time available."""


class Rerun(msgspec.Struct, frozen=True):
    """Make a new job like one that has ended.

    With `once` there is one such job, however often it is asked for within a day: a rerun of many
    that was broken off can be started anew.
    """

    once: bool = False


Plain: TypeAlias = j.Cancel | j.Hold | j.Activate | j.Reprioritise | j.Reschedule | j.Move
"""Verbs that are commands of the lifecycle as they stand."""
Verb: TypeAlias = Plain | RunNow | Rerun


def command_of(verb: Plain | RunNow, now: int) -> Plain:
    """The command of the lifecycle that carries the verb out."""
    return j.Reschedule(now) if isinstance(verb, RunNow) else verb


def softened(verb: Verb, answer: j.Answer, stored: Stored | None) -> j.Answer:
    """A job that could run now already is not refused for that, but left alone."""
    is_ready = isinstance(answer, Refusal) and answer.state == j.JobState.AVAILABLE
    if isinstance(verb, RunNow) and is_ready and stored is not None:
        return j.Unchanged(stored.job)
    return answer
