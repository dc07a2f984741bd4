"""Writing a unit that was judged: jobs, workflows and small records, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job, JobEvent, JobState, Lease
from detent.lifecycle.job.table import PARKED
from detent.stores.api import Body, GateRow, Key, LimitRow, Move, New, Record, key_of, name_of
from detent.stores.sqlite import rows
from detent.stores.sqlite.known import Known
from detent.stores.sqlite.pending import Head, Pending, head_of
from detent.stores.sqlite.spots import Spot, spot_of
from detent.stores.writing import Writer

_ERASED = (
    "erase_body",
    "erase_result",
    "erase_failures",
    "erase_logs",
    "erase_checkpoint",
    "erase_note",
)


class _Stood(NamedTuple):
    """Where a job stood before a move, as far as the tally of its step asks."""

    state: JobState
    previous: JobState | None
    attempt: int
    is_lost: bool


class Writing(Writer):
    """Turns decisions into rows that wait; nothing is refused here any more."""

    def __init__(self, pending: Pending, known: Known) -> None:
        self._pending = pending
        self._known = known
        self.has_made_available = False

    def switch(self, gates: Sequence[GateRow], limits: Sequence[LimitRow]) -> None:
        for gate in gates:
            self._put_gate(gate)
        for limit in limits:
            self._put_limit(limit)
        self.has_made_available = True

    def _put_gate(self, row: GateRow) -> None:
        values = (row.gate.closed, row.gate.opened_at, row.gate.queue_deleted)
        self._pending.run("gate_put", row.tenant, str(row.kind), row.name, *values)

    def _put_limit(self, row: LimitRow) -> None:
        """What was used of it stays used."""
        name = (row.tenant, str(row.kind), row.name)
        if row.limit is None:
            self._pending.run("limit_drop", *name)
        else:
            self._pending.run("limit_put", *name, *msgspec.structs.astuple(row.limit))

    def gated(self, job: Job) -> int:
        """Whether the job stands in a step that lets nobody in; 1 or 0, as the column has it."""
        if job.workflow is None or job.step is None:
            return 0
        flow = self._known.flow_of(job.tenant, job.workflow)
        return int(not w.is_claimable(flow.workflow, flow.steps[job.step]))

    # --- jobs ---------------------------------------------------------------------------------

    def job(self, key: Key) -> _Stood:
        head = self._known.must(key)
        previous = None if head.previous is None else JobState(head.previous)
        state = JobState(head.state)
        is_lost = state in PARKED and head.returned_by == JobEvent.LOSE
        return _Stood(state, previous, head.attempt, is_lost)

    def write_move(self, move: Move, now: int) -> None:
        job, pending = move.job, self._pending
        head = self._known.must((job.tenant, job.id))
        wake_at = self.in_time(head, move)
        if move.events:
            self._write_head(head, move, wake_at)
            pending.record(move.events)
            self._moved(head, job, now)
        else:
            pending.add("job_rearm", wake_at, head.seq, move.version)
        if pending.has_handed:
            pending.add("unhand", head.seq)
        if job.erased_at is None:
            self._write_beside(head.seq, move)
        elif head.erased_at is None:
            self._erase(head.seq, job)

    def _write_head(self, head: Head, move: Move, wake_at: int | None) -> None:
        job, pending = move.job, self._pending
        is_done = head.state == JobState.ACTIVE and job.state is JobState.COMPLETED
        if is_done and len(move.events) == 1 and job.step is None:
            # The most frequent move of all sets only what it changes.
            pending.add_row("job_done", rows.done_row(job, wake_at, head.seq, move.version))
            return
        if head.state == JobState.COMPLETED:
            # What happens to it afterwards is written after that.
            pending.flush()
        row = rows.move_row(job, wake_at, self.gated(job), head.seq, move.version)
        pending.add_row("job_move", row)

    def wire_lease(self, lease: str) -> Lease:
        return self._known.wire_lease(lease)

    def _moved(self, head: Head, job: Job, now: int) -> None:
        pending, after = self._pending, spot_of(job, head.type, head.key)
        lane = after.lane if head.queue == job.queue else after.lane._replace(queue=head.queue)
        pending.count(Spot(lane, str.__str__(head.state)), after)
        self.has_made_available |= job.state is JobState.AVAILABLE
        self._keep_lease_row(head.seq, head.lease if head.wire else None, job, now)
        if job.lease not in (None, head.lease) and not job.wire:
            # Put into the hands of a lost worker whose hands were empty: somebody must look again.
            pending.add("worker_reopen", job.holder)
        if head.lease not in (None, job.lease) and self._known.has_limits:
            # It made room, and somebody may be waiting for just that.
            self.has_made_available = True
        if head.is_unique:
            pending.add("unique_move", str.__str__(job.state), head.seq)
        renewed = head_of(head.seq, job, head.type, head.is_unique, head.key)
        pending.heads[job.tenant, job.id] = renewed

    def _write_beside(self, seq: int, move: Move) -> None:
        pending = self._pending
        if move.result is not None:
            pending.add("result_put", seq, move.result, move.result_until)
        if move.failure is not None:
            pending.add_row("failure_insert", rows.failure_row(seq, move.failure))
        if move.checkpoint is not None:
            pending.add("checkpoint_put", seq, move.checkpoint)
        if move.meta is not None:
            pending.add("meta_put", move.meta, seq)
        for line in move.lines:
            pending.add("log_insert", seq, pending.next_cursor(seq), line.at, line.level, line.text)

    def _erase(self, seq: int, job: Job) -> None:
        """Nothing of what the job was about is left, and nothing of what it said."""
        self._pending.flush()
        for tag in self._known.tags(seq):
            self._known.run("tag_drop", job.tenant, tag, job.id)
        for statement in _ERASED:
            self._known.run(statement, seq)

    def write_new(self, new: New, now: int) -> None:
        job, pending, body = new.job, self._pending, new.body
        seq = pending.next_seq()
        is_unique = int(new.unique is not None)
        apart = (body.type, body.key, new.wake_at, is_unique, self.gated(job))
        if job.version == 1:
            pending.add_row("job_born", (seq, *rows.born_row(job), *apart))
        else:
            pending.add_row("job_insert", (seq, *rows.job_row(job), *apart))
        self._write_body(seq, job, body)
        pending.record(new.events)
        self.has_made_available |= job.state is JobState.AVAILABLE
        pending.count(None, spot_of(job, body.type, body.key))
        self._keep_lease_row(seq, None, job, now)
        self._promise(seq, new)
        pending.heads[job.tenant, job.id] = head_of(seq, job, body.type, is_unique, body.key)

    def _write_body(self, seq: int, job: Job, body: Body) -> None:
        self._pending.add_row("body_insert", rows.body_row(seq, body))
        for tag in body.tags:
            self._pending.add("tag_insert", job.tenant, tag, job.id)

    def _promise(self, seq: int, new: New) -> None:
        tenant, pending = new.job.tenant, self._pending
        if new.unique is not None:
            state = str.__str__(new.job.state)
            fingerprint = new.unique.fingerprint
            pending.add("unique_insert", seq, tenant, fingerprint, state, new.job.created_at)
        if new.idempotency is not None:
            asked = new.idempotency
            pending.add("idempotency_put", tenant, asked.key, asked.digest, asked.expires_at, seq)

    def _keep_lease_row(self, seq: int, before: str | None, job: Job, now: int) -> None:
        """A wire lease has a row of its own, from the moment it begins until it ends."""
        after = job.lease if job.wire else None
        if before == after:
            return
        if before is not None:
            self._pending.add("lease_end", before)
        if after is not None:
            self._pending.add("lease_put", after, now + (job.lease_us or 0), seq)

    # --- small records --------------------------------------------------------------------------

    def write_record(self, record: Record, command_id: str) -> None:
        name = name_of(record)
        if record.data is None:
            self._pending.add_row("record_drop", name)
        else:
            rest = (record.version, record.data, record.wake_at, command_id)
            self._pending.add_row("record_put", (*name, *rest))

    # --- workflows ------------------------------------------------------------------------------

    def write_flow(self, answer: w.Accepted, flow: w.Flow, counted: Iterable[str]) -> None:
        """The records that moved; a step without jobs has no tally."""
        key, moved = key_of(flow.workflow), {event.record for event in answer.events}
        self._pending.flows[key] = flow
        if key[1] in moved:
            self._pending.add_row("workflow_put", rows.workflow_row(flow.workflow))
        for step in flow.steps.values() if moved else ():
            if step.id in moved:
                self._pending.add_row("step_put", rows.step_row(step))
        self._open_and_sweep(key[0], answer)
        self._pending.record(answer.events)
        for step_id in counted:
            self._pending.tallies[key[0], step_id] = flow.tallies.get(step_id)

    def _open_and_sweep(self, tenant: str, answer: w.Accepted) -> None:
        for step_id in answer.opened:
            self._pending.add("step_flips", tenant, step_id)
            self.has_made_available = True
        for step_id in answer.sweep:
            self._pending.add("step_sweep", tenant, step_id)

    def flow(self, key: Key) -> w.Flow | None:
        return self._known.flow(key)
