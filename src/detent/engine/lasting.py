"""How long all attempts of a job may take together, and how long its result is kept. Pure.

Both are said when the job is made. Its total time is part of its retry policy; how long its result
is kept stands in its metadata, and where it does not, its profile says so.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.job import Gate, Job, JobState, Lease
from detent.lifecycle.profile import PROFILES
from detent.lifecycle.retry import EXHAUSTED, Verdict, total_end
from detent.stores.api import Body

KEEP: Final = "$keep"
"""Where in its metadata a job says for how many microseconds its result is kept."""
FOR_EVER: Final = -1
TOTAL: Final = "total_timeout"
"""What a job fails with whose total time is up."""
_MARK: Final = f'"{KEEP}"'
_NEVER_AGAIN: Final = Verdict(retry=False, delay_us=0, cause=EXHAUSTED)


class _Kept(msgspec.Struct):
    keep: int = msgspec.field(name=KEEP, default=FOR_EVER)


_decode = msgspec.json.Decoder(_Kept).decode


# --- the result ---------------------------------------------------------------------------------


def lasting(job: Job, body: Body, result: str | None, now: int) -> tuple[str | None, int | None]:
    """What is stored of the result of a job that ends now, and until when; `None` for ever."""
    keep_us = PROFILES[job.profile].result_us
    if _MARK in body.meta:
        keep_us = _said(body.meta, keep_us)
    if result is None or keep_us is None or keep_us < 0:
        return result, None
    # Whoever comes later in a workflow gets it, however short it is kept.
    is_stored = keep_us > 0 or job.workflow is not None
    return (result, now + keep_us) if is_stored else (None, None)


def _said(meta: str, usual: int | None) -> int | None:
    try:
        return _decode(meta).keep
    except msgspec.DecodeError:
        # Not everybody asks before they write metadata.
        return usual


# --- the total time -----------------------------------------------------------------------------


def is_over(job: Job, body: Body, now: int) -> bool:
    """Whether its total time is up."""
    end = total_end(body.retry, job.created_at)
    return end is not None and end <= now


def over(job: Job, now: int, ctx: j.Context) -> j.Answer:
    """The end of a job that runs when its total time is up: it fails, and nothing is left."""
    return j.decide(job, j.Fail(code=TOTAL), now, replace(ctx, verdict=_NEVER_AGAIN))


def wake_of(
    job: Job, body: Body, now: int, gate: Gate = j.OPEN, lease: Lease | None = None
) -> int | None:
    """When time may next change the job; of one that runs, its total time is a part of that."""
    wake_at = j.next_wake(job, now, gate=gate, lease=lease)
    end = total_end(body.retry, job.created_at)
    if end is None or job.state is not JobState.ACTIVE:
        return wake_at
    return end if wake_at is None else min(wake_at, end)
