"""Bugs in what is forgotten, and when."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from detent.lifecycle.job import Job
from detent.stores.api import Key, Move, Retention
from detent.stores.bounds import TURNS_US
from detent.stores.memory import MemoryStore
from detent.stores.memory.tables import Tables


class TurnsAreKeptForEver(MemoryStore):
    def _forget_turns(self, before: int, limit: int) -> None:
        pass


class TurnsAreForgottenAtOnce(MemoryStore):
    def _forget_turns(self, before: int, limit: int) -> None:
        super()._forget_turns(before + TURNS_US, limit)


class TheUnsealedGoes(Tables):
    def is_sealed(self, key: Key) -> bool:
        return True


class TheFirstSealIsEnough(Tables):
    def is_sealed(self, key: Key) -> bool:
        return self.events[key][0].pos <= (self.leaves[-1][0] if self.leaves else 0)


class TheLivingGo(MemoryStore):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        dead = replace(job, ended_at=job.state_at) if job.ended_at is None else job
        return super()._lets_go(rule, dead)


class AnyEndIsAnEnd(MemoryStore):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, state=job.state), job)


class MembersOfLiveWorkflowsGo(Tables):
    def is_alone(self, job: Job) -> bool:
        return True


class MembersOfEndedWorkflowsStay(Tables):
    def is_alone(self, job: Job) -> bool:
        return job.workflow is None


class TheInstantItselfIsOver(MemoryStore):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, before=rule.before + 1), job)


class RulesForgetTheirTenant(MemoryStore):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, tenant=None), job)


class RulesForgetTheirQueue(MemoryStore):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, queue=None), job)


class TheNewestGoFirst(MemoryStore):
    def _ready(self, rules: Sequence[Retention]) -> list[Key]:
        return super()._ready(rules)[::-1]


class OneTooManyGoes(MemoryStore):
    async def prune(self, rules: Sequence[Retention], *, now: int, limit: int = 1_000) -> int:
        return await super().prune(rules, now=now, limit=limit + 1)


class TheFeedKeepsTheForgotten(Tables):
    def forget(self, keys: Sequence[Key]) -> None:
        self.events |= {("forgotten", key[1]): self.events[key] for key in keys}
        super().forget(keys)


class HistoriesOutliveTheirRecord(Tables):
    def forget(self, keys: Sequence[Key]) -> None:
        kept = {key: self.events[key] for key in keys if key in self.jobs}
        super().forget(keys)
        self.events |= kept


class LeavesGoWithTheirEvents(Tables):
    def forget(self, keys: Sequence[Key]) -> None:
        gone = {fed.pos for key in keys for fed in self.events[key]}
        super().forget(keys)
        self.leaves = [one for one in self.leaves if one[0] not in gone]


class LinesOutliveTheirJob(Tables):
    def forget(self, keys: Sequence[Key]) -> None:
        lines = self.lines
        super().forget(keys)
        self.lines = lines


class WorkflowsAreNeverForgotten(MemoryStore):
    def _ready_flows(self, rules: Sequence[Retention]) -> Iterator[list[Key]]:
        return iter(())


class WorkflowsAreForgottenAtAnyAge(MemoryStore):
    def _ready_flows(self, rules: Sequence[Retention]) -> Iterator[list[Key]]:
        return super()._ready_flows([replace(rule, before=2**62) for rule in rules])


class StepsOutliveTheirWorkflow(Tables):
    def forget(self, keys: Sequence[Key]) -> None:
        workflows = [key for key in keys if key in self.flows]
        super().forget(workflows or keys)


class PromisesThatLiveAreForgotten(MemoryStore):
    def _forget_promises(self, now: int) -> None:
        self._all.promises = {}


# --- results --------------------------------------------------------------------------------------


class ResultsAreKeptForEver(MemoryStore):
    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        return 0


class ResultsGoOneMicrosecondEarly(MemoryStore):
    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        return await super().forget_results(now=now + 1, limit=limit)


class ResultsOfLiveWorkflowsGo(MemoryStore):
    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        flows, self._all.flows = self._all.flows, {}
        gone = await super().forget_results(now=now, limit=limit)
        self._all.flows = flows
        return gone


class ResultsAreKeptThoughTheWorkflowHasEnded(MemoryStore):
    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        members = [key for key, stored in self._all.jobs.items() if stored.job.workflow is not None]
        kept = {key: self._all.results_until.pop(key, None) for key in members}
        self._all.results_until |= dict.fromkeys(kept)
        gone = await super().forget_results(now=now, limit=limit)
        self._all.results_until |= kept
        return gone


class TheNewestResultsGoFirst(MemoryStore):
    async def forget_results(self, *, now: int, limit: int = 1_000) -> int:
        ends = {key: at for key, at in self._all.results_until.items() if at and at <= now}
        self._all.results_until |= {key: -at for key, at in ends.items()}
        gone = await super().forget_results(now=now, limit=limit)
        left = {key for key in ends if (self._all.results_until[key] or 0) < 0}
        self._all.results_until |= {key: ends[key] for key in left}
        return gone


class TheTimeOfAResultIsNotWritten(Tables):
    def write_move(self, move: Move, now: int) -> None:
        super().write_move(replace(move, result_until=None), now)
