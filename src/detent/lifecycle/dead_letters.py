"""Dead letters: discarded jobs that are kept for somebody to look at, or to run again. Pure."""

from __future__ import annotations

from typing import Final

from detent.lifecycle.job import Job
from detent.lifecycle.job.table import Cause, JobState
from detent.lifecycle.retry import Exhaustion, RetryPolicy

BY_ATTEMPTS: Final = (Cause.EXHAUSTED, Cause.NOT_RETRYABLE, Cause.POISON)
"""Why no attempt was left; what was dropped or has expired was never tried in vain."""


def is_letter(job: Job, retry: RetryPolicy) -> bool:
    """Discarded because no attempt was left, and to be kept; or because its handler said so."""
    if job.state is not JobState.DISCARDED or job.erased_at is not None:
        return False
    kept = retry.on_exhaustion is Exhaustion.DEAD_LETTER
    return job.cause == Cause.DEAD_LETTER_ASKED or (kept and job.cause in BY_ATTEMPTS)
