"""Bugs in who gets which job: order, filters, limits, turns, offers."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.job import JobState
from detent.lifecycle.profile import SPAN_US_MAX
from detent.stores import api, limits
from detent.stores.api import Named, Stored, Want
from detent.stores.limits import Limit, Used
from detent.stores.memory import MemoryStore
from detent.stores.quotas import Met, Quotas, Turns
from tests.contract.making import Clock

Turn = tuple[int, int, int, int, str]

# --- order and filters ----------------------------------------------------------------------------


class PriorityIsIgnored(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        return super()._turn(replace(stored, job=replace(stored.job, priority=0)), want, turns)


class PriorityIsTurnedRound(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        turned = replace(stored.job, priority=-stored.job.priority)
        return super()._turn(replace(stored, job=turned), want, turns)


class ClaimsGoById(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        return super()._turn(replace(stored, job=replace(stored.job, place=0)), want, turns)


class QueuesAreOne(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        served, _, priority, place, name = super()._turn(stored, want, turns)
        return served, 0, priority, place, name


class LeasesOfOtherTenantsAreFree(MemoryStore):
    def _claimed_before(self, want: Want) -> list[Stored]:
        held = super()._claimed_before(want)
        return [one for one in held if one.job.tenant == want.tenant]


class ClaimsForgetTheTenant(MemoryStore):
    def _fits(self, stored: Stored, want: Want) -> bool:
        return super()._fits(stored, replace(want, tenant=stored.job.tenant))


class ClaimsForgetTheType(MemoryStore):
    def _fits(self, stored: Stored, want: Want) -> bool:
        return super()._fits(stored, replace(want, types=None))


class OneLeaseTooFew(MemoryStore):
    def _claim(self, want: Want, now: int) -> api.Claimed:
        return super()._claim(
            replace(want, leases=want.leases[: max(len(want.leases) - 1, 1)]), now
        )


class GatesAreIgnoredByClaims(MemoryStore):
    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        gates, self._all.gates = self._all.gates, {}
        try:
            return super()._answer(stored, lease, want, now)
        finally:
            self._all.gates = gates


class TheFirstBlockedJobEndsTheClaim(MemoryStore):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._refusal: j.Answer | None = None

    def _grant(self, want: Want, now: int) -> api.Claimed:
        self._refusal = None
        return super()._grant(want, now)

    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        answer = self._refusal or super()._answer(stored, lease, want, now)
        self._refusal = None if isinstance(answer, j.Accepted) else answer
        return answer


class ClaimsAreMadeInThePast(MemoryStore):
    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        return super()._answer(stored, lease, want, now - 60_000_000)


class ARepeatedClaimTakesMore(MemoryStore):
    def _claimed_before(self, want: Want) -> list[Stored]:
        return []


class LostWorkersMayClaim(MemoryStore):
    def _claim(self, want: Want, now: int) -> api.Claimed:
        rows = self._all.workers
        self._all.workers = {name: replace(row, lost=False) for name, row in rows.items()}
        try:
            return super()._claim(want, now)
        finally:
            self._all.workers = rows


class PushJobsAreClaimed(MemoryStore):
    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        taken = stored if want.push else replace(stored, job=replace(stored.job, delivery="pull"))
        return super()._answer(taken, lease, want, now)


class PullJobsAreOffered(MemoryStore):
    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        taken = replace(stored, job=replace(stored.job, delivery="push")) if want.push else stored
        return super()._answer(taken, lease, want, now)


class OffersAreClaims(MemoryStore):
    def _answer(self, stored: Stored, lease: str, want: Want, now: int) -> j.Answer:
        return super()._answer(stored, lease, replace(want, push=False), now)


# --- limits ---------------------------------------------------------------------------------------


class Wrong(MemoryStore):
    """The model, if it misread its limits."""

    def _met(self, name: Named) -> Met | None:
        found = super()._met(name)
        return None if found is None else self._misread(name, *found)

    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        raise NotImplementedError


class OneMoreThanTheLimit(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        return limit, used, active - 1


class OneStartTooMany(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        return limit, replace(used, starts=max(used.starts - 1, 0)), active


class OffersAreNotInHands(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        jobs = self._all.jobs.values()
        offered = [one for one in jobs if one.job.state is JobState.PENDING]
        return limit, used, active - sum(name in self._limits_of(one) for one in offered)


class LimitsCountEveryTenant(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        held = [one for one in self._all.jobs.values() if one.job.lease is not None]
        names = [(one.job.queue, one.body.key) for one in held]
        place = 0 if name[1] == api.LimitKind.QUEUE else 1
        return limit, used, sum(one[place] == name[2] for one in names)


class LimitsAreEveryTenants(MemoryStore):
    def _limits_of(self, stored: Stored) -> list[Named]:
        return super()._limits_of(replace(stored, job=replace(stored.job, tenant="")))


class AQueuesLimitHidesTheKeys(MemoryStore):
    def _limits_of(self, stored: Stored) -> list[Named]:
        there = [name for name in super()._limits_of(stored) if name in self._all.limits]
        return there[:1]


class JobsWithoutAKeyShareALimit(MemoryStore):
    def _limits_of(self, stored: Stored) -> list[Named]:
        body = replace(stored.body, key=stored.body.key or "default")
        return super()._limits_of(replace(stored, body=body))


class PeriodsNeverEnd(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        return replace(limit, period_us=SPAN_US_MAX), used, active


class PeriodsBeginWithTheLastStart(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        return limit, replace(used, period_at=used.last_at), active


class PeriodsEndOneMicrosecondLate(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        return replace(limit, period_us=min(limit.period_us + 1, SPAN_US_MAX)), used, active


class SpacingIsIgnored(Wrong):
    def _misread(self, name: Named, limit: Limit, used: Used, active: int) -> Met:
        return replace(limit, spacing_us=None), used, active


class Impatient(Quotas):
    def has_room(self, names: Sequence[Named]) -> bool:
        return super().has_room(names) and not self._kept_back


class TheFirstFullLimitEndsTheClaim(MemoryStore):
    _quotas = Impatient


class Hasty(Quotas):
    def _free_at(self, names: Sequence[Named]) -> int | None:
        ends = [limits.free_at(*one, self._now) for one in self._full(names)]
        return min((end for end in ends if end is not None), default=None)


class ComeAgainWhenTheFirstLimitEnds(MemoryStore):
    _quotas = Hasty


class Hopeful(Quotas):
    def _free_at(self, names: Sequence[Named]) -> int | None:
        ends = [limits.free_at(*one, self._now) for one in self._full(names)]
        return max((end for end in ends if end is not None), default=None)


class ComeAgainForTheBusyToo(MemoryStore):
    _quotas = Hopeful


class Early(Quotas):
    def _free_at(self, names: Sequence[Named]) -> int | None:
        at = super()._free_at(names)
        return at and at - 1


class ComeAgainOneMicrosecondEarly(MemoryStore):
    _quotas = Early


class ComeAgainThoughNothingIsMissing(MemoryStore):
    def _grant(self, want: Want, now: int) -> api.Claimed:
        more = super()._grant(replace(want, leases=(*want.leases, "one-more")), now)
        return super()._grant(want, now) if not more.jobs else more


# --- turns ----------------------------------------------------------------------------------------


class NobodyRemembersWhoWasServed(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        return 0, *super()._turn(stored, want, turns)[1:]


class Simultaneous(Turns):
    def _latest(self) -> int:
        return 0


class WhoIsServedAtOneMomentIsServedAlike(MemoryStore):
    _turns = Simultaneous


class Zealous(Turns):
    def serve(self, queue: str, key: str | None) -> None:
        asked = self._want
        for fair in api.Fair:
            self._want = replace(asked, fair=fair)
            super().serve(queue, key)
        self._want = asked


class EveryClaimCountsAsATurn(MemoryStore):
    _turns = Zealous


class SharedByTenants(Turns):
    def _name(self, queue: str, key: str | None) -> Named:
        return "", *super()._name(queue, key)[1:]


class TurnsAreSharedByAllTenants(MemoryStore):
    _turns = SharedByTenants


class SharedByKinds(Turns):
    def _name(self, queue: str, key: str | None) -> Named:
        tenant, _, name = super()._name(queue, key)
        return tenant, "", name


class KeysAndQueuesShareTheirTurns(MemoryStore):
    _turns = SharedByKinds


class JobsWithoutAKeyAreAlwaysFirst(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        turn = super()._turn(stored, want, turns)
        return (0, *turn[1:]) if stored.body.key is None else turn


class FairClaimsStillGoByQueue(MemoryStore):
    def _turn(self, stored: Stored, want: Want, turns: Turns) -> Turn:
        served, _, priority, place, name = super()._turn(stored, want, turns)
        return served, want.queues.index(stored.job.queue), priority, place, name
