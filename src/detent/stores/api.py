"""What a store promises: two small protocols, a write side and a read side.

A store is dumb. It commits what the lifecycle decided, whole or not at all, behind fences; it hands
out what may be claimed and what is due, each item to one caller; and it remembers. Every call takes
many items, commits once and answers per item. Instants are microseconds handed in by the caller: no
statement asks the database for the time.

The unit of all-or-nothing is a `Unit`: the records of one decision with their events. Many units
share a transaction; one that cannot be committed never hurts its neighbours.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from detent.lifecycle.event import By, Event
from detent.lifecycle.job import Gate, Job, Lease
from detent.lifecycle.retry import RetryPolicy
from detent.lifecycle.seal import Block
from detent.stores.select import FIRST_PAGE, Filter, Page

__all__ = [
    "Body",
    "Claimed",
    "Committed",
    "Counted",
    "Due",
    "Failure",
    "Fed",
    "GateKind",
    "GateRow",
    "Idempotency",
    "Key",
    "LeaseAlive",
    "Line",
    "Logged",
    "Move",
    "New",
    "Outcome",
    "Own",
    "ReadStore",
    "Rejected",
    "Stale",
    "Stepped",
    "Store",
    "Stored",
    "Taken",
    "Unique",
    "Unit",
    "Want",
    "WorkerRow",
    "WriteStore",
    "key_of",
]

Key: TypeAlias = tuple[str, str]
"""A record's tenant and id: what it is found by, everywhere."""


def key_of(job: Job) -> Key:
    """What the job is found by."""
    return job.tenant, job.id


class Body(msgspec.Struct, frozen=True):
    """What a job is about. Written once, with the job, and never changed.

    `payload` and `meta` are exact JSON text: what comes out is byte for byte what went in.
    """

    type: str
    payload: str = "[]"
    meta: str = "{}"
    tags: tuple[str, ...] = ()
    retry: RetryPolicy = RetryPolicy()
    schema: str | None = None


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


class Stored(msgspec.Struct, frozen=True):
    """A job as the store has it: the record, when time may next change it, and what it is about."""

    job: Job
    body: Body
    wake_at: int | None = None
    result: str | None = None
    failures: tuple[Failure, ...] = ()


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


class New(msgspec.Struct, frozen=True):
    """A job that comes into being."""

    job: Job
    events: tuple[Event, ...]
    body: Body
    wake_at: int | None = None
    unique: Unique | None = None
    idempotency: Idempotency | None = None


class Move(msgspec.Struct, frozen=True):
    """A job that goes on: its next record and the events that lead there.

    `version` is the one the decision was made on. Without events only `wake_at` moves. `lease` is
    the lease that the move relies on or ends. With `lost` the store re-reads the row behind that
    lease in the same transaction and refuses when it is alive after all. With `taken_by` the row of
    that worker must be alive and not lost.
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


class Unit(msgspec.Struct, frozen=True):
    """What one decision changes: all of it is committed, or none. `command_id` is its own."""

    command_id: str
    moves: tuple[Move, ...] = ()
    new: tuple[New, ...] = ()


class Committed(msgspec.Struct, frozen=True):
    """It is durable."""


class Own(msgspec.Struct, frozen=True):
    """It was durable already: this very command had been committed and its answer was lost."""


class Stale(msgspec.Struct, frozen=True):
    """The record has moved on, or is gone (`None`): decide again on what it is now."""

    key: Key
    now: Job | None


class LeaseAlive(msgspec.Struct, frozen=True):
    """The holder was declared lost, but its row is alive; or it must be alive, and is not."""

    key: Key
    lease: Lease | None


class Taken(msgspec.Struct, frozen=True):
    """An id, a unique fingerprint or an idempotency key is in use: `by` is the job that has it.

    `what` is `id`, `idempotency` or `unique`, the first of them that applies. `differs` is true
    when an idempotency key was used before for something else. Of several jobs that a unique one
    would stand beside, `by` is the oldest.
    """

    what: str
    by: Job
    differs: bool = False


class Rejected(msgspec.Struct, frozen=True):
    """The database itself refuses it (a check, a trigger): the fault is ours, and is not stored."""

    why: str


Outcome: TypeAlias = Committed | Own | Stale | LeaseAlive | Taken | Rejected


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's wish for jobs: as many as it brings leases for.

    Queues are looked at strictly from left to right; within one by priority, then by place.
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


class Claimed(msgspec.Struct, frozen=True):
    """The jobs a wish was granted, oldest claim first; `lost` when the claimer is marked lost."""

    jobs: tuple[Stored, ...] = ()
    lost: bool = False


class Stepped(msgspec.Struct, frozen=True):
    """The answers of one step: one per unit, in order, and what was claimed."""

    outcomes: tuple[Outcome, ...]
    claimed: Claimed = Claimed()


class Due(msgspec.Struct, frozen=True):
    """A job that time may have changed, with everything that `tick` asks about it."""

    stored: Stored
    lease: Lease | None
    gate: Gate


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker instance: trusted until `alive_until`, or lost for good."""

    id: str
    alive_until: int
    lost: bool = False


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


class WriteStore(Protocol):
    """The side that changes something. Every call is one commit."""

    async def step(self, units: Sequence[Unit], *, now: int, want: Want | None = None) -> Stepped:
        """Commit the units and claim what is wanted, in one transaction."""
        ...

    async def take_due(self, *, now: int, limit: int, hold_us: int = 500_000) -> Sequence[Due]:
        """What is due by now, each item to one caller: its `wake_at` moves to now + `hold_us`."""
        ...

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> Sequence[bool]:
        """Register or renew worker instances; false for one that is lost for good."""
        ...

    async def declare_lost(self, workers: Sequence[str], *, now: int) -> Sequence[bool]:
        """Mark instances lost, for good, if their time is over by `now`; false if it is not.

        Their jobs are due from then on, in whatever batches `take_due` hands them out.
        """
        ...

    async def extend(self, leases: Sequence[tuple[str, int]], *, now: int) -> Sequence[bool]:
        """Move the end of wire leases; false for one that has ended. No version moves."""
        ...

    async def set_gates(self, gates: Sequence[GateRow], *, now: int) -> None:
        """Close and open gates; claims see it at once."""
        ...

    async def seal(self, *, limit: int = 10_000) -> Block | None:
        """Seal the oldest events not sealed yet into the next block; `None` if there are none."""
        ...

    async def append_logs(self, lines: Sequence[tuple[Key, Line]]) -> Sequence[int]:
        """Append lines; the cursor of each, or 0 where there is no such job."""
        ...


class ReadStore(Protocol):
    """The side that only looks. Every call sees one moment."""

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        """The jobs of these keys, in order."""
        ...

    async def find(self, chosen: Filter, page: Page = FIRST_PAGE) -> Sequence[Stored]:
        """The jobs that fit, newest first."""
        ...

    async def held_by(self, holder: str, limit: int) -> Sequence[Stored]:
        """Jobs in the hands of one holder."""
        ...

    async def counts(self, tenant: str | None = None) -> Sequence[Counted]:
        """Exact numbers by queue and state."""
        ...

    async def history(self, key: Key) -> Sequence[Event]:
        """All events of a record, oldest first."""
        ...

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        """The same for many records at once, in order, each event at its position in the feed.

        A position of 0 means that the feed has not taken the event in yet.
        """
        ...

    async def leases(self, leases: Sequence[str]) -> Sequence[Lease | None]:
        """The rows of these wire leases, in order; `None` for one that has ended."""
        ...

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        """All events in their one order, after a position."""
        ...

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        """The sealed blocks after a number, oldest first."""
        ...

    async def logs(self, key: Key, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        """The log of a job after a cursor."""
        ...

    async def log_tail(self, after: int = 0, limit: int = 1_000) -> Sequence[Logged]:
        """The lines of all jobs after a position."""
        ...

    async def wait(self, timeout_s: float) -> bool:
        """Until something that could be claimed may exist; false when the time ran out first."""
        ...

    def keys(self) -> AsyncIterator[Key]:
        """Every record there is, for `verify`."""
        ...


class Store(WriteStore, ReadStore, AbstractAsyncContextManager["Store"], Protocol):
    """Both sides of one database; entering it connects, leaving it closes."""
