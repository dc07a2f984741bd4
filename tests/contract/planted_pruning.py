"""Bugs in what is forgotten, and when."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow
from detent.stores.api import Key, Retention, key_of
from detent.stores.bounds import TURNS_US
from detent.stores.memory.pruning import Pruning


class TurnsAreKeptForEver(Pruning):
    def _forget_turns(self, before: int, limit: int) -> None:
        pass


class TurnsAreForgottenAtOnce(Pruning):
    def _forget_turns(self, before: int, limit: int) -> None:
        super()._forget_turns(before + TURNS_US, limit)


class TheUnsealedGoes(Pruning):
    def _is_sealed(self, key: Key) -> bool:
        return True


class TheFirstSealIsEnough(Pruning):
    def _is_sealed(self, key: Key) -> bool:
        sealed = self._tables.leaves[-1][0] if self._tables.leaves else 0
        fed = [one for one in self._tables.feed if (one.event.tenant, one.event.record) == key]
        return fed[0].pos <= sealed


class TheLivingGo(Pruning):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        dead = replace(job, ended_at=job.state_at) if job.ended_at is None else job
        return super()._lets_go(rule, dead)


class AnyEndIsAnEnd(Pruning):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, state=job.state), job)


class MembersOfLiveWorkflowsGo(Pruning):
    def _is_alone(self, job: Job) -> bool:
        return True


class MembersOfEndedWorkflowsStay(Pruning):
    def _is_alone(self, job: Job) -> bool:
        return job.workflow is None


class TheInstantItselfIsOver(Pruning):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, before=rule.before + 1), job)


class RulesForgetTheirTenant(Pruning):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, tenant=None), job)


class RulesForgetTheirQueue(Pruning):
    def _lets_go(self, rule: Retention, job: Job) -> bool:
        return super()._lets_go(replace(rule, queue=None), job)


class TheNewestGoFirst(Pruning):
    def _ready(self, rules: Sequence[Retention]) -> list[Job]:
        return super()._ready(rules)[::-1]


class OneTooManyGoes(Pruning):
    def prune(self, rules: Sequence[Retention], now: int, limit: int) -> int:
        return super().prune(rules, now, limit + 1)


class TheFeedKeepsTheForgotten(Pruning):
    def _forget_events(self, key: Key) -> None:
        feed = self._tables.feed
        super()._forget_events(key)
        self._tables.feed = feed


class HistoriesOutliveTheirRecord(Pruning):
    def _forget_events(self, key: Key) -> None:
        events = self._tables.events[key]
        super()._forget_events(key)
        self._tables.events[key] = events


class LeavesGoWithTheirEvents(Pruning):
    def _forget_events(self, key: Key) -> None:
        super()._forget_events(key)
        left = {fed.pos for fed in self._tables.feed}
        self._tables.leaves = [one for one in self._tables.leaves if one[0] in left]


class LinesOutliveTheirJob(Pruning):
    def _forget(self, key: Key) -> None:
        lines = self._tables.lines
        super()._forget(key)
        self._tables.lines = lines


class WorkflowsAreNeverForgotten(Pruning):
    def _ready_flows(self, rules: Sequence[Retention]) -> list[Flow]:
        return []


class WorkflowsAreForgottenAtAnyAge(Pruning):
    def _ready_flows(self, rules: Sequence[Retention]) -> list[Flow]:
        return super()._ready_flows([replace(rule, before=2**62) for rule in rules])


class StepsOutliveTheirWorkflow(Pruning):
    def _forget_flow(self, flow: Flow) -> None:
        del self._tables.flows[key_of(flow.workflow)]
        self._forget_events(key_of(flow.workflow))


class PromisesThatLiveAreForgotten(Pruning):
    def _forget_promises(self, now: int) -> None:
        self._tables.promises = {}
