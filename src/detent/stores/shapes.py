"""What is told to a store and what it tells: the nouns of the protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from detent.lifecycle.event import By, Event
from detent.lifecycle.job import Claim, Dispatch, Gate, Job, Lease
from detent.lifecycle.retry import RetryPolicy
from detent.lifecycle.workflow import Accepted, Flow, Workflow
from detent.stores.limits import Limit, Used
from detent.stores.workers import WorkerRow

Key: TypeAlias = tuple[str, str]
"""A record's tenant and id: what it is found by, everywhere."""
Named: TypeAlias = tuple[str, str, str]
"""A tenant, what kind of thing is meant, and its name; of a small record kind, tenant and id."""
RECORDS_MAX: Final = 1_000
"""How many records and leases one step may have, together; whoever has more makes several steps.

While a step is written nobody else can write, and so many take SQLite some 40 ms. All-or-nothing is
promised per unit; a workflow with more jobs is built as a draft, unit by unit, and then opened.
"""

RECORD_CHARS: Final = 65_536
"""So many characters of payloads, results and logs take the room of one record in a step.

So a step has some 65 million of them at most, or one unit: memory is held several times over while
it is written, and no value of PostgreSQL is larger than a gigabyte.
"""
UNIT_MAX: Final = 25_000
"""How many records a unit may have that is a step by itself: what is all or nothing cannot be cut.

So many take SQLite about a second, in which nobody else can write.
"""


def key_of(record: Job | Workflow) -> Key:
    """What a job or a workflow is found by."""
    return record.tenant, record.id


class Body(msgspec.Struct, frozen=True, gc=False):
    """What a job is about. Written once, with the job, and never changed.

    `payload` and `meta` are exact JSON text: what comes out is byte for byte what went in. `key` is
    what limits and fairness count the job under: a customer, an account, a remote service.
    """

    type: str
    payload: str = "[]"
    meta: str = "{}"
    tags: tuple[str, ...] = ()
    retry: RetryPolicy = RetryPolicy()
    schema: str | None = None
    key: str | None = None


class Failure(msgspec.Struct, frozen=True):
    """The error of one attempt: the event has its code, this row has the rest."""

    attempt: int
    at: int
    code: str
    message: str = ""
    type: str = ""
    details: str | None = None
    backtrace: str | None = None


class Line(msgspec.Struct, frozen=True):
    """A line of a job's log as it is written; the store gives it its cursor."""

    at: int
    text: str
    level: str = "info"


class Note(msgspec.Struct, frozen=True):
    """How far an attempt says it is. The newest counts; no version moves."""

    at: int
    attempt: int
    percent: int | None = None
    text: str = ""


class Stored(msgspec.Struct, frozen=True, gc=False):
    """A job as the store has it: the record, when time may next change it, and what it is about.

    Of an erased job only the record, its type and its history are left.
    """

    job: Job
    body: Body
    wake_at: int | None = None
    result: str | None = None
    failures: tuple[Failure, ...] = ()
    note: Note | None = None
    checkpoint: str | None = None


def head_of(stored: Stored) -> Stored:
    """The job as `ReadStore.heads` answers it."""
    return Stored(
        stored.job,
        msgspec.structs.replace(stored.body, payload="", meta="{}"),
        stored.wake_at,
        failures=tuple(
            msgspec.structs.replace(one, details=None, backtrace=None) for one in stored.failures
        ),
        note=stored.note,
    )


class Unique(msgspec.Struct, frozen=True):
    """The new job must be the only one of its fingerprint among those that count.

    Counting are jobs in one of `states` that were created at `since` or later. A job that the same
    unit moves out of these states does not count any more: that is how one replaces another.
    """

    fingerprint: str
    states: tuple[str, ...]
    since: int | None = None


class Idempotency(msgspec.Struct, frozen=True):
    """A caller's promise that this is one request: the same key within its life is the same job."""

    key: str
    digest: str
    expires_at: int


class New(msgspec.Struct, frozen=True, gc=False):
    """A job that comes into being."""

    job: Job
    events: tuple[Event, ...]
    body: Body
    wake_at: int | None = None
    unique: Unique | None = None
    idempotency: Idempotency | None = None


class Move(msgspec.Struct, frozen=True, gc=False):
    """A job that goes on: its next record and the events that lead there.

    `version` is the one the decision was made on. Without events only `wake_at` moves. `lease` is
    the lease that the move relies on or ends. With `lost` the store re-reads the row behind that
    lease in the same transaction and refuses when it is alive after all. With `taken_by` the row of
    that worker must be alive and not lost. `result_until` is when the result need not be kept any
    more, `None` for never.
    """

    version: int
    job: Job
    events: tuple[Event, ...] = ()
    wake_at: int | None = None
    lease: str | None = None
    lost: bool = False
    taken_by: str | None = None
    result: str | None = None
    failure: Failure | None = None
    lines: tuple[Line, ...] = ()
    checkpoint: str | None = None
    meta: str | None = None
    result_until: int | None = None


class Record(msgspec.Struct, frozen=True):
    """A small record beside the jobs: a schedule, a webhook, an alias, a key, a queue's settings.

    The store knows nothing of what `data` (JSON) says. `version` counts its changes from 1: a new
    version is taken only if the one before it is stored. `data` of `None` deletes.
    """

    kind: str
    id: str
    version: int
    data: str | None
    wake_at: int | None = None
    tenant: str = ""


def name_of(record: Record) -> Named:
    """What a small record is found by: its kind, tenant and id."""
    return record.kind, record.tenant, record.id


class FlowMove(msgspec.Struct, frozen=True):
    """What a command does to a workflow: the flow it was decided on, and what was decided.

    All versions of `before` are fenced. The tallies of both are ignored: the store counts jobs by
    itself, and lets every move follow that its own numbers ask for.
    """

    before: Flow | None
    answer: Accepted


class Unit(msgspec.Struct, frozen=True, gc=False):
    """What one decision changes: all of it is committed, or none. `command_id` is its own.

    What jobs of a workflow do moves the counters of their step, and what follows from these for
    steps and workflow is committed with the unit, under its command. A job that comes back to wait
    in a step where nothing will run any more is cancelled with it.

    Gates and limits have no version: whoever sets them puts a small record with one beside them.
    """

    command_id: str
    moves: tuple[Move, ...] = ()
    new: tuple[New, ...] = ()
    flow: FlowMove | None = None
    puts: tuple[Record, ...] = ()
    gates: tuple[GateRow, ...] = ()
    limits: tuple[LimitRow, ...] = ()

    @property
    def size(self) -> int:
        """How much of a step the unit takes."""
        size = len(self.moves) + len(self.new)
        if self.puts or self.gates or self.limits:
            size += len(self.puts) + len(self.gates) + len(self.limits)
        return size or 1

    @property
    def weight(self) -> int:
        """The same for whoever fills a step: long texts are more than short ones."""
        chars = 0
        for move in self.moves:
            chars += len(move.result or "") + len(move.checkpoint or "")
            if move.lines:
                chars += sum(len(line.text) for line in move.lines)
        for new in self.new:
            chars += len(new.body.payload)
        return max(self.size, chars // RECORD_CHARS)


class Committed(msgspec.Struct, frozen=True):
    """It is durable."""


class Own(msgspec.Struct, frozen=True):
    """It was durable already: this very command had been committed and its answer was lost."""


class Stale(msgspec.Struct, frozen=True):
    """The record has moved on, or is gone (`None`): decide again on what it is now."""

    key: Key
    now: Job | None


class StaleFlow(msgspec.Struct, frozen=True):
    """The workflow or one of its steps has moved on, or there is none: decide again."""

    key: Key
    now: Flow | None


class StaleRecord(msgspec.Struct, frozen=True):
    """The small record has another version, or is gone (`None`)."""

    record: Record
    now: Record | None


class LeaseAlive(msgspec.Struct, frozen=True):
    """The holder was declared lost, but its row is alive; or it must be alive, and is not."""

    key: Key
    lease: Lease | None


class Taken(msgspec.Struct, frozen=True):
    """An id, a unique fingerprint or an idempotency key is in use: `by` is the job that has it.

    `what` is `id`, `idempotency` or `unique`, the first of them that applies. `differs` is true
    when an idempotency key was used before for something else. Of several jobs that a unique one
    would stand beside, `by` is the oldest. It may be a job before it in the same unit: then neither
    of them is stored.
    """

    what: str
    by: Job
    differs: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """The database itself refuses it (a check, a trigger): the fault is ours, and is not stored."""

    why: str


Outcome: TypeAlias = (
    Committed | Own | Stale | StaleFlow | StaleRecord | LeaseAlive | Taken | Rejected
)


class Fair(StrEnum):
    """What takes turns in a claim: the queues of a wish, or the keys of the jobs in them."""

    QUEUES = "queues"
    KEYS = "keys"


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's wish for jobs: as many as it brings leases for.

    Queues are looked at strictly from left to right; within one by priority, then by place. With
    `fair`, the queue or key that was served longest ago comes first instead, job by job. With
    `push` jobs of push delivery are dispatched to the holder; otherwise pull jobs are claimed.
    `types` and `profiles` of `None` mean any. The ids of the leases are made by the claimer before
    the call, so that a repeated call (same `command_id`) answers the jobs that hold them.
    """

    command_id: str
    by: By
    holder: str
    leases: tuple[str, ...]
    queues: tuple[str, ...]
    tenant: str = ""
    wire: bool = False
    lease_us: int | None = None
    types: tuple[str, ...] | None = None
    profiles: tuple[str, ...] | None = None
    push: bool = False
    fair: Fair | None = None

    def command(self, lease: str) -> Claim | Dispatch:
        """What it asks of the lifecycle about one job."""
        asked = Dispatch if self.push else Claim
        return asked(lease, self.holder, self.wire, self.lease_us)

    def takes(self, kind: str, profile: str) -> bool:
        """Whether jobs of this type and profile are wanted."""
        is_known = self.types is None or kind in self.types
        return is_known and (self.profiles is None or profile in self.profiles)


class Passed(msgspec.Struct, frozen=True, order=True):
    """Jobs of one queue and key (`""` for none) that a limit of their queue or key kept back."""

    kind: LimitKind
    queue: str
    key: str = ""


class Claimed(msgspec.Struct, frozen=True):
    """The jobs a wish was granted, oldest claim first; `lost` when the claimer is marked lost.

    `retry_at` is when time alone lets a job through that a rate kept back, if fewer jobs were
    granted than wanted. Room under a concurrency limit is heard of through `wait`, to which `seen`
    is handed. `passed` are the jobs that were met and kept back, by the limit that had no room.
    """

    jobs: tuple[Stored, ...] = ()
    lost: bool = False
    retry_at: int | None = None
    seen: int = 0
    passed: tuple[Passed, ...] = ()


class Stepped(msgspec.Struct, frozen=True):
    """The answers of one step: one per unit, in order, and what was claimed."""

    outcomes: tuple[Outcome, ...]
    claimed: Claimed = Claimed()


class Due(msgspec.Struct, frozen=True):
    """A job that time may have changed, with everything that `tick` asks about it.

    `swept`: it waits in a step where nothing will run any more, and is to be cancelled. `holder` is
    the row of the worker instance that has it, if that is marked lost.
    """

    stored: Stored
    lease: Lease | None
    gate: Gate
    swept: bool = False
    holder: WorkerRow | None = None


class GateKind(StrEnum):
    """What a gate stands before: all jobs of a queue, or all of a type."""

    QUEUE = "queue"
    TYPE = "type"


class GateRow(msgspec.Struct, frozen=True):
    """A gate that was closed, opened or whose queue was deleted; the newest word counts."""

    kind: GateKind
    name: str
    gate: Gate
    tenant: str = ""


class LimitKind(StrEnum):
    """What a limit counts: all jobs of a queue, or all jobs of a key, in whatever queue."""

    QUEUE = "queue"
    KEY = "key"


class LimitRow(msgspec.Struct, frozen=True):
    """A limit that was set, or taken away (`None`); the newest word counts."""

    kind: LimitKind
    name: str
    limit: Limit | None
    tenant: str = ""


class Limited(msgspec.Struct, frozen=True):
    """A limit and how much of it is used."""

    row: LimitRow
    active: int
    used: Used


class Retention(msgspec.Struct, frozen=True):
    """Jobs that ended in this state before that instant need not be kept.

    Without `letters` those are kept that are dead letters.
    """

    state: str
    before: int
    tenant: str | None = None
    queue: str | None = None
    letters: bool = True


class Fed(msgspec.Struct, frozen=True):
    """An event at its position in the feed of all events."""

    pos: int
    event: Event


class Logged(msgspec.Struct, frozen=True):
    """A line at its cursor: per job from 1, without gaps. `pos` orders the lines of all jobs."""

    key: Key
    cursor: int
    line: Line
    pos: int


class Counted(msgspec.Struct, frozen=True):
    """How many jobs of a queue are in a state."""

    tenant: str
    queue: str
    state: str
    count: int
