"""When time alone changes a job: the instants, as pure arithmetic over the record.

`next_wake` is a lower bound, cheap to compute and safe to be early; `tick` looks again with the
lease and the gate in hand.
"""

from __future__ import annotations

from detent.lifecycle.job.record import OPEN, Gate, Job, Lease
from detent.lifecycle.job.table import JobState


def next_wake(
    job: Job, now: int = 0, *, gate: Gate = OPEN, lease: Lease | None = None
) -> int | None:
    """The earliest moment at which `tick` could have something to do, or `None` for never."""
    match job.state:
        case JobState.SCHEDULED | JobState.RETRYABLE:
            return _earliest(job.run_at, job.expires_at)
        case JobState.AVAILABLE:
            return _earliest(job.expires_at, _ready_wake(job, now, gate))
        case JobState.PENDING:
            return _earliest(limit_end(job), lease_end(job, lease))
        case JobState.ACTIVE:
            return _earliest(limit_end(job), job.force_at, lease_end(job, lease))
        case _:
            return None


def ready_end(job: Job, gate: Gate) -> int | None:
    """When the limit of `available` ends; a hold or a closed gate stops that clock."""
    if job.state is not JobState.AVAILABLE or job.held or gate.closed:
        return None
    return _ready_sum(job, gate)


def limit_end(job: Job) -> int | None:
    """When the limit of the pending or active state it is in ends, whatever holds or pauses say."""
    if job.state is JobState.ACTIVE:
        return _sum(job.started_at, job.active_us)
    if job.received_at is not None:
        return _sum(job.received_at, job.start_us)
    return _sum(job.claimed_at, job.pending_us)


def lease_end(job: Job, lease: Lease | None) -> int | None:
    """When its own lease row ends; a job held by a worker's heartbeat has none to watch."""
    if not job.wire:
        return None
    return lease.until if lease is not None else _sum(job.claimed_at, job.lease_us)


def lease_over_at(job: Job, lease: Lease | None) -> int | None:
    """When the job is lost, as far as this row says: at once if its holder is marked lost.

    A worker's row that merely ran out loses nothing yet: the row is marked first, for good, so
    that a late heartbeat cannot bring back a worker whose jobs are being given away.
    """
    if lease is None:
        return None
    if lease.lost:
        return 0
    return lease.until if job.wire else None


def _ready_wake(job: Job, now: int, gate: Gate) -> int | None:
    """A closed gate restarts the limit when it opens, so now + limit is then a true bound."""
    if job.held:
        return None
    end = _ready_sum(job, gate)
    if end is None or job.available_us is None or not gate.closed:
        return end
    return max(end, now + job.available_us)


def _ready_sum(job: Job, gate: Gate) -> int | None:
    if job.available_us is None or job.ready_at is None:
        return None
    return max(job.ready_at, gate.opened_at or 0) + job.available_us


def _sum(instant: int | None, length_us: int | None) -> int | None:
    return None if instant is None or length_us is None else instant + length_us


def _earliest(*instants: int | None) -> int | None:
    return min((one for one in instants if one is not None), default=None)
