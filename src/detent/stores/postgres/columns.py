"""The columns of jobs and events, taken from the structs that the lifecycle itself uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from detent.lifecycle.dead_letters import BY_ATTEMPTS
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import IN_HANDS, PARKED, Cause

JOB: Final = Job.__struct_fields__
_FIXED: Final = frozenset(
    {
        *("tenant", "id", "profile", "delivery", "allowed", "losses_allowed", "created_at"),
        *("expires_at", "available_us", "pending_us", "active_us", "rerun_of", "workflow", "step"),
    }
)
MOVING: Final = tuple(name for name in JOB if name not in _FIXED)
"""What a move may change; everything else is fixed when the job is made."""
EVENT_END: Final = Event.__struct_fields__.index("cause")
"""Up to here an event has columns of its own; the rest of it is one JSON text."""
EVENT: Final = (*Event.__struct_fields__[2:EVENT_END], "rest")
"""The columns that follow the key of the record."""


_FIRST: Final = frozenset({"tenant", "id", "version", "last_at", "state", "lease_us"})
"""What a claim returns before everything else."""


def _of(alias: str, names: Iterable[Any]) -> str:
    return ", ".join(f"{alias}.{name}" for name in names)


def _letter() -> str:
    """What `is_letter` says of a discarded job `j`."""
    tried = ", ".join(f"'{cause}'" for cause in BY_ATTEMPTS)
    kept = "(j.retry::jsonb ->> 'on_exhaustion') = 'dead_letter'"
    asked = f"j.cause = '{Cause.DEAD_LETTER_ASKED}'"
    # A job without a policy of its own has the usual one.
    is_kept = f"j.cause IN ({tried}) AND coalesce({kept}, false)"
    return f"j.erased_at IS NULL AND ({asked} OR ({is_kept}))"


WORDS: Final = {
    "job": ", ".join(JOB),
    "job_of_j": _of("j", JOB),
    "taken": _of("taken", JOB),
    "claimed_more": _of("j", (name for name in JOB if name not in _FIRST)),
    "moving": ", ".join(MOVING),
    "moving_sets": ", ".join(f"{name} = told.{name}" for name in MOVING),
    "event_of_e": _of("e", ("tenant", "record", *EVENT)),
    "parked": ", ".join(f"'{state}'" for state in sorted(PARKED)),
    "is_letter": _letter(),
    "in_hands": ", ".join(f"'{state}'" for state in sorted(IN_HANDS)),
}
"""What stands in for words in double braces in the statements."""
