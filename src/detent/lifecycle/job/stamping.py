"""Decides about one of many like jobs, and copies the decision for the others. Pure.

Jobs that are alike differ in their id, their place and their moment alone, and a decision has
nothing else to look at. So it is made for one of them, and that it holds for others is shown with a
second one, before any is stamped.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import astuple, replace

from detent.lifecycle.event import By, Event
from detent.lifecycle.job.commands import Complete, Enqueue
from detent.lifecycle.job.deciding import decide
from detent.lifecycle.job.record import Accepted, Answer, Context, Job
from detent.lifecycle.job.values import is_plain_name
from detent.lifecycle.job.waking import next_wake
from detent.lifecycle.machine import Refusal

_Values = tuple[Any, ...]

_JOB, _EVENT = Job.__struct_fields__, Event.__struct_fields__
_CREATED, _HELD, _ENQUEUED, _ACTIVATED = (
    _JOB.index(name) for name in ("created_at", "held", "enqueued_at", "activated_at")
)
_NAME, _COMMAND, _KIND, _PLACE = (
    _EVENT.index(name) for name in ("name", "command_id", "kind", "place")
)
_FIRST, _SECOND = ("first", "the first", 1_000, 1), ("second", "the second", 2_000_000, 7)


class Stamp:
    """The birth of jobs that can start at once, as `command` wants them, by one and the same actor.

    `of` answers no stamp where a decision looks at the clock: then each is decided by itself.
    """

    __slots__ = ("_event", "_job", "_wakes_after", "tenant")

    def __init__(self, born: Accepted) -> None:
        job, event = astuple(born.job), astuple(born.events[0])
        self.tenant = born.job.tenant
        self._job = job[2:_CREATED], job[_HELD:_ENQUEUED], _short(job[_ACTIVATED:])
        self._event = event[_NAME:_COMMAND], event[_KIND:_PLACE], _short(event[_PLACE + 1 :])
        wake_at = next_wake(born.job, born.job.created_at)
        self._wakes_after = None if wake_at is None else wake_at - born.job.created_at

    @classmethod
    def of(cls, command: Enqueue, by: By, reason: str | None = None) -> Stamp | Refusal | None:
        """The stamp, why no such job can be, or nothing if they cannot be stamped."""
        first, second = (_decided(command, by, reason, one) for one in (_FIRST, _SECOND))
        if isinstance(first, Refusal):
            return first
        if command.run_at is not None or command.expires_at is not None:
            return None
        if not isinstance(first, Accepted) or not isinstance(second, Accepted):
            return None
        stamp = cls(first)
        is_true = stamp.born(*_FIRST) == first and stamp.born(*_SECOND) == second
        return stamp if is_true and stamp.wake_at(_SECOND[2]) == _woken(second) else None

    def born(self, job_id: str, command_id: str, now: int, place: int) -> Accepted:
        """What `decide` would answer for a job of that id, at that moment and place."""
        fixed, counters, rest = self._job
        tenant, (edge, between, facts) = self.tenant, self._event
        # In the order of the fields: a constructor that gets no names is the fastest there is.
        came = (*fixed, now, now, now, None, place)
        job: _Values = (tenant, job_id, *came, *counters, now, now, *rest)
        event: _Values = (tenant, job_id, 1, now, *edge, command_id, *between, place, *facts)
        return Accepted(Job(*job), (Event(*event),))

    def wake_at(self, now: int) -> int | None:
        """When time alone may first change a job that was born then."""
        return None if self._wakes_after is None else now + self._wakes_after


def _decided(
    command: Enqueue, by: By, reason: str | None, one: tuple[str, str, int, int]
) -> Answer:
    job_id, command_id, now, place = one
    ctx = Context(by, command_id, place=place, reason=reason)
    return decide(None, replace(command, id=job_id), now, ctx)


def _woken(born: Accepted) -> int | None:
    return next_wake(born.job, born.job.created_at)


def _short(values: _Values) -> _Values:
    """Without what is nothing at the end, which is what it is if it is not said."""
    last = max((at for at, value in enumerate(values) if value is not None), default=-1)
    return values[: last + 1]


_PREVIOUS = _JOB.index("previous")
_ID, _PLACE_AT, _LEASE = (_JOB.index(name) for name in ("id", "place", "lease"))
_CLAIMED, _RECEIVED = _JOB.index("claimed_at"), _JOB.index("received_at")
_DIGEST = _EVENT.index("digest")


class Endings:
    """Completions at one moment: of jobs that stand alike one is decided about.

    Two records that differ in their names, their place, their lease and their moments are the same
    to a completion under that lease. Whoever stands otherwise than the last one that was learnt
    from is decided about by itself.
    """

    __slots__ = ("_after", "_by", "_event", "_now", "_shape")

    def __init__(self, now: int) -> None:
        self._now = now
        self._by: By | None = None
        self._shape: _Values | None = None

    def decide(self, job: Job, command: Complete, ctx: Context) -> Answer:
        """The answer of `decide`, copied where another job stood just like this one."""
        before = astuple(job)
        is_common = (
            self._is_common(job, command)
            and ctx.reason is None
            and ctx.place is None
            and is_plain_name(ctx.command_id)
        )
        if is_common and self._shape == _shape(before) and self._by == ctx.by:
            return self._like_another(before, ctx.command_id, command.digest)
        answer = decide(job, command, self._now, ctx)
        if is_common and isinstance(answer, Accepted) and len(answer.events) == 1:
            self._learn(before, answer, command, ctx)
        return answer

    def knows(self, job: Job, command: Complete, by: By) -> bool:
        """Whether this one, too, can be `copied`: under a plain name, and for no reason told."""
        is_common = self._is_common(job, command) and self._by == by
        return is_common and self._shape == _shape(astuple(job))

    def copied(self, job: Job, command_id: str, digest: str | None) -> Accepted:
        """The end of a job that is known to stand like the last one that was learnt from."""
        return self._like_another(astuple(job), command_id, digest)

    def _is_common(self, job: Job, command: Complete) -> bool:
        """It is reported under the lease that it has, in time, and nobody has called it off.

        The moment and the actor are those of the one that was decided about: what is left to be
        looked at are the names.
        """
        return (
            command.lease is not None
            and command.lease == job.lease
            and job.last_at <= self._now
            and (command.digest is None or is_plain_name(command.digest))
        )

    def _learn(self, before: _Values, answer: Accepted, command: Complete, ctx: Context) -> None:
        event = astuple(answer.events[0])
        self._by, self._shape = ctx.by, _shape(before)
        self._after = list(astuple(answer.job))
        self._event = event[2:_COMMAND], event[_KIND:_DIGEST], _short(event[_DIGEST + 1 :])
        if self._like_another(before, ctx.command_id, command.digest) != answer:
            self._shape = None

    def _like_another(self, before: _Values, command_id: str, digest: str | None) -> Accepted:
        after = self._after.copy()
        # What a job keeps through its completion and no other has.
        after[_ID], after[_CREATED], after[_PLACE_AT] = (
            before[_ID],
            before[_CREATED],
            before[_PLACE_AT],
        )
        after[_ENQUEUED:_ACTIVATED] = before[_ENQUEUED:_ACTIVATED]
        after[_CLAIMED:_RECEIVED] = before[_CLAIMED:_RECEIVED]
        edge, between, facts = self._event
        names = before[0], before[_ID]
        event: _Values = (*names, *edge, command_id, *between, digest, *facts)
        return Accepted(Job(*after), (Event(*event),))


def _shape(job: _Values) -> _Values:
    """How a job stands: all of it but its name, its place, its lease and its moments."""
    return (
        job[0],
        job[2:_CREATED],
        job[_PREVIOUS],
        job[_HELD:_LEASE],
        job[_LEASE + 1 : _ENQUEUED],
        job[_ACTIVATED:_CLAIMED],
        job[_RECEIVED:],
    )
