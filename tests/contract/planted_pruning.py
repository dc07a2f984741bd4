"""Bugs in what is forgotten, and when."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow
from detent.stores.api import Key, Retention, key_of
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


class MembersOfLiveWorkflowsGo(MemoryStore):
    def _is_alone(self, job: Job) -> bool:
        return True


class MembersOfEndedWorkflowsStay(MemoryStore):
    def _is_alone(self, job: Job) -> bool:
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
    def _ready(self, rules: Sequence[Retention]) -> list[Job]:
        return super()._ready(rules)[::-1]


class OneTooManyGoes(MemoryStore):
    async def prune(self, rules: Sequence[Retention], *, now: int, limit: int = 1_000) -> int:
        return await super().prune(rules, now=now, limit=limit + 1)


class TheFeedKeepsTheForgotten(MemoryStore):
    def _forget(self, key: Key) -> None:
        self._all.events["forgotten", key[1]] = self._all.events[key]
        super()._forget(key)


class HistoriesOutliveTheirRecord(MemoryStore):
    def _forget(self, key: Key) -> None:
        events = self._all.events[key]
        super()._forget(key)
        self._all.events[key] = events


class LeavesGoWithTheirEvents(MemoryStore):
    def _forget(self, key: Key) -> None:
        gone = {fed.pos for fed in self._all.events[key]}
        super()._forget(key)
        self._all.leaves = [one for one in self._all.leaves if one[0] not in gone]


class LinesOutliveTheirJob(MemoryStore):
    def _forget(self, key: Key) -> None:
        lines = self._all.lines
        super()._forget(key)
        self._all.lines = lines


class WorkflowsAreNeverForgotten(MemoryStore):
    def _ready_flows(self, rules: Sequence[Retention]) -> list[Flow]:
        return []


class WorkflowsAreForgottenAtAnyAge(MemoryStore):
    def _ready_flows(self, rules: Sequence[Retention]) -> list[Flow]:
        return super()._ready_flows([replace(rule, before=2**62) for rule in rules])


class StepsOutliveTheirWorkflow(MemoryStore):
    def _forget_flow(self, flow: Flow) -> None:
        del self._all.flows[key_of(flow.workflow)]
        del self._all.events[key_of(flow.workflow)]


class PromisesThatLiveAreForgotten(MemoryStore):
    def _forget_promises(self, now: int) -> None:
        self._all.promises = {}
