"""What people do to many jobs at once, and why one is where it is, in the words of an app."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypedDict, Unpack

import msgspec

from detent.app.options import instant_of
from detent.app.waiting import moment
from detent.engine.bulk import Effects
from detent.engine.hurdles import Verdict
from detent.engine.queries import Why
from detent.engine.verbs import Rerun, RunNow, Verb
from detent.lifecycle import job as j
from detent.runtime.bridge import Bridge, awaiting, blocking
from detent.stores.select import Filter

if TYPE_CHECKING:
    from detent.app.detent import Detent

__all__ = ["Explanation", "Gated", "Obstacle", "Selecting", "Selection", "explained"]


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


class Selecting(TypedDict, total=False):
    """What a job must be to be selected; all of it holds together."""

    queue: str
    state: str
    type: str
    key: str
    tag: str
    workflow: str
    step: str
    tenant: str


class Gated(TypedDict, total=False):
    """What is paused: all jobs of a queue, or all of a type."""

    queue: str
    type: str
    tenant: str


class How(TypedDict, total=False):
    """How a verb is applied to many."""

    dry_run: bool
    limit: int | None
    actor: str | None


class Selection:
    """The jobs that fit a filter, whichever they are when a verb is applied to them.

    Every verb says what it did, or with `dry_run` what it would do: decided just the same, and not
    committed. It goes from the newest to the oldest, in small commits; one that was broken off can
    be started again. `limit` bounds it to the newest; `actor` is who the history names.
    """

    def __init__(self, app: Detent, chosen: Filter) -> None:
        self._app = app
        self._chosen = chosen

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self._app.bridge

    async def _cancel(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Call them off; those that run are asked to stop."""
        return await self._apply(j.Cancel(), reason, how)

    async def _rerun(self, reason: str, **how: Unpack[How]) -> Effects:
        """A new job for each that has ended, one at most within a day."""
        return await self._apply(Rerun(once=True), reason, how)

    async def _run_now(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Let those start that wait for their time."""
        return await self._apply(RunNow(), reason, how)

    async def _reschedule(
        self, at: datetime, reason: str | None = None, **how: Unpack[How]
    ) -> Effects:
        """Give those that wait for their time another one."""
        return await self._apply(j.Reschedule(instant_of("at", at)), reason, how)

    async def _reprioritise(
        self, priority: int, reason: str | None = None, **how: Unpack[How]
    ) -> Effects:
        """Give them another priority; higher goes first."""
        return await self._apply(j.Reprioritise(priority), reason, how)

    async def _move(self, queue: str, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Put those that wait into another queue, at its end."""
        return await self._apply(j.Move(queue), reason, how)

    async def _hold(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Keep them from being started."""
        return await self._apply(j.Hold(), reason, how)

    async def _release(self, reason: str | None = None, **how: Unpack[How]) -> Effects:
        """Let those that are held start again."""
        return await self._apply(j.Activate(), reason, how)

    cancel, acancel = blocking(_cancel), awaiting(_cancel)
    rerun, arerun = blocking(_rerun), awaiting(_rerun)
    run_now, arun_now = blocking(_run_now), awaiting(_run_now)
    reschedule, areschedule = blocking(_reschedule), awaiting(_reschedule)
    reprioritise, areprioritise = blocking(_reprioritise), awaiting(_reprioritise)
    move, amove = blocking(_move), awaiting(_move)
    hold, ahold = blocking(_hold), awaiting(_hold)
    release, arelease = blocking(_release), awaiting(_release)

    async def _apply(self, verb: Verb, reason: str | None, how: How) -> Effects:
        engine = await self._app.engine()
        return await engine.bulk.apply(
            verb,
            self._chosen,
            self._app.by_whom(how.get("actor")),
            reason,
            dry_run=how.get("dry_run", False),
            limit=how.get("limit"),
        )
