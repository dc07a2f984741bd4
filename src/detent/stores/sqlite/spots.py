"""Where jobs are counted: lanes, which a claim walks, and the states in them."""

from __future__ import annotations

from typing import NamedTuple

from detent.lifecycle.job import Job


class Lane(NamedTuple):
    """Jobs that a claim takes or leaves together: it walks each lane in order."""

    tenant: str
    queue: str
    delivery: str
    type: str
    profile: str
    key: str


class Spot(NamedTuple):
    """Where a job is counted."""

    lane: Lane
    state: str


def spot_of(job: Job, kind: str, key: str | None) -> Spot:
    """Where the job is counted."""
    delivery = str.__str__(job.delivery)
    lane = Lane(job.tenant, job.queue, delivery, kind, job.profile, key or "")
    return Spot(lane, str.__str__(job.state))
