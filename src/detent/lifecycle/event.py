"""The one shape of a recorded move, for records of every kind.

An event is written in the same commit as the move it records and never changed. It carries what
`fold` needs to rebuild the record, the error's code and the digests of what lives elsewhere; never
a payload, a result or a traceback. Instants (`*_at`, `at`) are microseconds since the epoch, UTC;
durations end in `_us`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from detent.lifecycle.machine import Actor


class Charge(StrEnum):
    """What an event cost the job, written down so that a later rule cannot rewrite history."""

    NONE = "none"
    FAILURE = "failure"
    LOSS = "loss"
    BOTH = "both"

    @property
    def failures(self) -> int:
        return _COSTS[self][0]

    @property
    def losses(self) -> int:
        return _COSTS[self][1]


_COSTS = {
    Charge.NONE: (0, 0),
    Charge.FAILURE: (1, 0),
    Charge.LOSS: (0, 1),
    Charge.BOTH: (1, 1),
}


class By(msgspec.Struct, frozen=True, gc=False):
    """Who moved it: the kind that the edge allows, and which one."""

    kind: Actor
    id: str = ""


class Made(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was fixed about a job when it was created."""

    profile: str
    delivery: str
    allowed: int
    losses_allowed: int
    expires_at: int | None = None
    available_us: int | None = None
    pending_us: int | None = None
    active_us: int | None = None
    rerun_of: str | None = None
    workflow: str | None = None
    step: str | None = None


class StepMade(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was fixed about a workflow's step when it was created."""

    workflow: str
    order: int
    fails: str
    condition: str
    when_empty: str
    gate: bool = False
    depends_on: tuple[str, ...] = ()


class WorkerFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What only an event of a worker has to say. A process is its pid and its start together."""

    slot: str | None = None
    suspendable: bool | None = None
    governor: str | None = None
    pid: int | None = None
    process_at: int | None = None
    exit_code: int | None = None
    health: str | None = None


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One move of one record. `version` is its place in the record's life, from 1, no gaps."""

    tenant: str
    record: str
    version: int
    at: int
    name: str
    source: str | None
    target: str | None
    actor: Actor
    actor_id: str
    command_id: str
    kind: str = "job"
    cause: str | None = None
    code: str | None = None
    reason: str | None = None
    charged: Charge | None = None
    place: int | None = None
    run_at: int | None = None
    delay_us: int | None = None
    queue: str | None = None
    priority: int | None = None
    held: bool | None = None
    lease: str | None = None
    holder: str | None = None
    wire: bool | None = None
    lease_us: int | None = None
    force_at: int | None = None
    start_us: int | None = None
    digest: str | None = None
    made: Made | None = None
    step_made: StepMade | None = None
    worker: WorkerFacts | None = None
