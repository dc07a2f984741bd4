"""Workflows inside one transaction: read under a lock, moved by their jobs, then written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

import msgspec

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow, Step, Tally, Workflow
from detent.stores import flows
from detent.stores.api import Key, key_of
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection

_encode = msgspec.json.Encoder().encode
_workflow = msgspec.json.Decoder(Workflow).decode
_step = msgspec.json.Decoder(Step).decode
_tally = msgspec.json.Decoder(Tally).decode


async def read_flows(
    connection: Connection, keys: Collection[Key], *, lock: bool = False
) -> dict[Key, Flow]:
    """The workflows of these keys with their steps and tallies, as far as there are any."""
    if not keys:
        return {}
    told = columns(("tenants", "ids"), sorted(keys))
    rows = await connection.fetch("workflows_locked" if lock else "workflows_read", **told)
    steps: defaultdict[Key, list[Step]] = defaultdict(list)
    tallies: defaultdict[Key, dict[str, Tally]] = defaultdict(dict)
    for tenant, workflow, record, tally, _ in await connection.fetch("steps_read", **told):
        step = _step(record)
        steps[tenant, workflow].append(step)
        if tally is not None:
            tallies[tenant, workflow][step.id] = _tally(tally)
    return {
        (tenant, id_): Flow.of(_workflow(record), steps[tenant, id_], tallies[tenant, id_])
        for tenant, id_, record in rows
    }


class Flows:
    """The workflows that some units of one transaction have to do with."""

    def __init__(self, known: dict[Key, Flow]) -> None:
        self._flows = known
        self._workflows: dict[Key, Workflow] = {}
        self._steps: dict[Key, Step] = {}
        self._tallies: dict[Key, Tally | None] = {}
        self._marks: defaultdict[Key, list[bool]] = defaultdict(lambda: [False, False])
        self.has_opened = False

    def copied(self) -> Flows:
        """The same workflows, before whatever comes next."""
        return Flows(dict(self._flows))

    def get(self, key: Key) -> Flow | None:
        """The workflow of that key, as it is by now."""
        return self._flows.get(key)

    @property
    def known(self) -> dict[Key, Flow]:
        """All of them, as they are by now."""
        return dict(self._flows)

    def learn(self, known: dict[Key, Flow]) -> None:
        """More workflows, as they were read."""
        self._flows |= known

    def is_shut(self, job: Job) -> bool:
        """Whether the job stands in a step that lets nobody in."""
        if job.workflow is None or job.step is None:
            return False
        flow = self._flows[job.tenant, job.workflow]
        return not w.is_claimable(flow.workflow, flow.steps[job.step])

    def apply(self, answer: w.Accepted) -> Sequence[Event]:
        """What was decided about a workflow; its tallies are ours and stay as they are."""
        key = key_of(answer.flow.workflow)
        known = self._flows.get(key)
        tallies = {} if known is None else known.tallies
        self._flows[key] = msgspec.structs.replace(answer.flow, tallies=tallies)
        self._keep(answer)
        return answer.events

    def _keep(self, answer: w.Accepted) -> None:
        """Remember the records that moved, and what the jobs of steps must hear."""
        key, moved = key_of(answer.flow.workflow), {event.record for event in answer.events}
        if key[1] in moved:
            self._workflows[key] = answer.flow.workflow
        for step in answer.flow.steps.values():
            if step.id in moved:
                self._steps[key[0], step.id] = step
        for step_id in answer.opened:
            self._marks[key[0], step_id][0] = self.has_opened = True
        for step_id in answer.sweep:
            self._marks[key[0], step_id][1] = True

    def follow(
        self, changes: flows.Changes, jobs: Sequence[Job], now: int, command_id: str
    ) -> tuple[list[Event], list[tuple[Job, j.Accepted]]]:
        """What the moves of these jobs ask of their workflows, and then of themselves."""
        events: list[Event] = []
        recalled: list[tuple[Job, j.Accepted]] = []
        for key in sorted(changes):
            after = flows.followed(self._flows[key], changes[key], jobs, now, command_id)
            if after.answer.events:
                self._keep(after.answer)
            self._flows[key] = after.flow
            for step in (*changes[key], *(job.step or "" for job, _ in after.recalled)):
                self._tallies[key[0], step] = after.flow.tallies.get(step)
            events += after.answer.events
            events += [event for _, answer in after.recalled for event in answer.events]
            recalled += after.recalled
        return events, recalled

    async def save(self, connection: Connection) -> None:
        """Write what has changed; events are the caller's."""
        if self._workflows:
            rows = [
                (*key, one.state, one.ended_at, _encode(one).decode())
                for key, one in self._workflows.items()
            ]
            names = ("tenants", "ids", "states", "ended_ats", "records")
            await connection.fetch("workflows_put", **columns(names, rows))
        if self._steps:
            steps = [(*key, s.workflow, _encode(s).decode()) for key, s in self._steps.items()]
            told = columns(("tenants", "ids", "workflows", "records"), steps)
            await connection.fetch("steps_put", **told)
        if self._tallies:
            counted = [
                (*key, None if tally is None else _encode(tally).decode())
                for key, tally in self._tallies.items()
            ]
            told = columns(("tenants", "ids", "tallies"), counted)
            await connection.fetch("steps_counted", **told)
        if self._marks:
            marks = [(*key, *mark) for key, mark in self._marks.items()]
            told = columns(("tenants", "ids", "flips", "swept"), marks)
            await connection.fetch("steps_marked", **told)
