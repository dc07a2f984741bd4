"""The job record, what surrounds a decision about it, and the three answers a decision can give."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from detent.lifecycle.event import By, Event
from detent.lifecycle.job.table import PARKED, JobEvent, JobState
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.profile import Delivery
from detent.lifecycle.retry import Verdict


class Job(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job's lifecycle, whole: everything here is rebuilt by folding its events.

    `lease` is set exactly while the job is pending or active; `holder` then says who holds it, and
    afterwards who held it last; `wire` is how. `run_at` is set exactly while it is scheduled
    or retryable. `ready_at` is when the limit of `available` last began to run. `previous` is the
    state before the last move; `returned_by` is the event that last brought it back from a worker's
    hands, until it is taken again; `cause` says why it ended.
    """

    tenant: str
    id: str
    version: int
    state: JobState
    profile: str
    queue: str
    priority: int
    delivery: Delivery
    allowed: int
    losses_allowed: int
    created_at: int
    state_at: int
    last_at: int
    previous: JobState | None = None
    place: int | None = None
    held: bool = False
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    handed_back: int = 0
    run_at: int | None = None
    expires_at: int | None = None
    available_us: int | None = None
    pending_us: int | None = None
    active_us: int | None = None
    lease: str | None = None
    holder: str | None = None
    wire: bool = False
    lease_us: int | None = None
    enqueued_at: int | None = None
    ready_at: int | None = None
    activated_at: int | None = None
    claimed_at: int | None = None
    started_at: int | None = None
    received_at: int | None = None
    start_us: int | None = None
    ended_at: int | None = None
    erased_at: int | None = None
    cancel_at: int | None = None
    force_at: int | None = None
    cause: str | None = None
    returned_by: str | None = None
    delay_us: int | None = None
    rerun_of: str | None = None
    workflow: str | None = None
    step: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether its last holder was lost and nobody has taken it since."""
        return self.returned_by == JobEvent.LOSE and self.state in PARKED


class Lease(msgspec.Struct, frozen=True):
    """The row a job is held by: until when it is good, and whether its holder is marked lost."""

    until: int
    lost: bool = False


class Gate(msgspec.Struct, frozen=True):
    """What stands between a job and its claim besides itself: pauses, closed steps, its queue.

    `opened_at` is when it last opened; the limit of `available` runs from there.
    """

    closed: bool = False
    opened_at: int | None = None
    queue_deleted: bool = False


OPEN = Gate()
SETTLED_BY = By(Actor.SYSTEM, "settle")
"""Who moves a job on when a move leaves it already due, expired or without a queue."""


class Context(msgspec.Struct, frozen=True, gc=False):
    """Everything a decision may look at besides the job, the command and the time.

    A `lease` of `None` means that the row was not looked at; a row that is missing in the store
    is handed in as a lost one. `place` is the next queue position, needed wherever the job may
    become available; `verdict` is what the retry policy says, needed wherever an attempt may turn
    out to have failed. `gate` is that of the queue the job will stand in.
    """

    by: By
    command_id: str
    place: int | None = None
    lease: Lease | None = None
    gate: Gate = OPEN
    verdict: Verdict | None = None
    reason: str | None = None


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The job as it is afterwards and the events of one commit, in order."""

    job: Job
    events: tuple[Event, ...]


class Unchanged(msgspec.Struct, frozen=True):
    """Nothing to do: no event, no version."""

    job: Job


Answer: TypeAlias = Accepted | Unchanged | Refusal
