"""What is told of a loss: who had the job, when it was last heard of, and how it ended. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from detent.engine.telling import told_at
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.job.values import REASON_MAX
from detent.lifecycle.profile import PROFILES, Drain
from detent.stores.api import Due, Failure, WorkerRow

SPARED_MAX = 10
"""Whoever was there that often when a worker fell, is believed no longer."""

LOST = "lost"
"""The type of an error that nobody has reported: its code says what happened."""


def is_spared(due: Due) -> bool:
    """Whether the loss is somebody else's doing, so that the job comes back at no cost.

    Its worker was stopped because the store was away. Or the job has lost a worker before and so
    ran in a process of its own, and that was not the one that died: others ran in there.
    """
    job, death = due.stored.job, None if due.holder is None else due.holder.death
    if death is None or not may_be_spared(job):
        return False
    return death.lapsed or (death.crowded and job.losses > 0)


def may_be_spared(job: Job) -> bool:
    """Whether it can come back at all, and was not there too often."""
    may_return = PROFILES[job.profile].drain is Drain.HAND_BACK
    return may_return and job.handed_back < SPARED_MAX


def reason_of(due: Due) -> str:
    """Why the job was lost, as a sentence: it names the worker and its last heartbeat."""
    job, row = due.stored.job, due.holder
    if row is not None:
        return f"{_named(row)} {_ended(row)}; {_heard(row)}"[:REASON_MAX]
    until = None if due.lease is None or not job.wire else due.lease.until
    if until is not None and until > 0:
        return f"{job.holder} did not renew its lease, which ended at {told_at(until)}"[:REASON_MAX]
    return f"nothing is known of {job.holder} any more"[:REASON_MAX]


def failure_of(due: Due, event: Event, reason: str) -> Failure:
    """The error of the attempt that was lost: the same for people, and its facts for programs."""
    details = {"holder": due.stored.job.holder} | ({} if due.holder is None else _facts(due.holder))
    text = msgspec.json.encode(details).decode()
    return Failure(due.stored.job.attempt, event.at, event.code or "", reason, LOST, text)


def _named(row: WorkerRow) -> str:
    process = None if row.who is None else row.who.process
    where = "" if process is None else f" (pid {process.pid} on {process.host})"
    return f"worker {row.id}{where}"


def _ended(row: WorkerRow) -> str:
    death = row.death
    if death is None:
        return f"was silent beyond {told_at(row.alive_until)}"
    if death.lapsed:
        return "could not be renewed, because the store was away, and was stopped for that"
    if death.exit_code is None:
        return f"is gone ({death.cause})"
    if death.exit_code < 0:
        return f"was ended by signal {-death.exit_code} ({death.cause})"
    return f"exited with {death.exit_code} ({death.cause})"


def _heard(row: WorkerRow) -> str:
    return f"its last heartbeat was at {told_at(row.beat_at)}" if row.beat_at else "it never beat"


def _facts(row: WorkerRow) -> dict[str, Any]:
    facts: dict[str, Any] = {"last_beat_at": row.beat_at, "trusted_until": row.alive_until}
    if row.who is not None:
        facts |= {"supervisor": row.who.supervisor, "slot": row.who.slot}
        process = row.who.process
        facts |= {} if process is None else {"host": process.host, "pid": process.pid}
    if row.death is not None:
        code = row.death.exit_code
        facts |= {"cause": row.death.cause, "exit_code": code}
        facts |= {"signal": -code} if code is not None and code < 0 else {}
    return facts
