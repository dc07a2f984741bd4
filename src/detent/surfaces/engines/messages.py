"""What may be said here: the shape of every message and the bounds of each of its fields."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, UnsetType

CAPACITY_MAX: Final = 1_000
"""Jobs that one engine may have at a time."""
DEADLINE_MS_MAX: Final = 30 * 24 * 3_600 * 1_000
_SPEED_MAX: Final = 1_000_000

Name = Annotated[str, Meta(min_length=1, max_length=255)]
EngineId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:@/-]{1,128}$")]
JobId = Annotated[str, Meta(min_length=1, max_length=64)]
Lease = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=10_000)]
Span = Annotated[int, Meta(ge=1, le=DEADLINE_MS_MAX)]
Cursor = Annotated[int, Meta(ge=0, le=10**15)]


class _Message(msgspec.Struct, frozen=True, rename="camel"):
    """Field names as they are on the wire; what is not known is passed over."""


class Resume(_Message, frozen=True):
    """A job that an engine says it has."""

    job_id: JobId
    lease: Lease


class Register(_Message, frozen=True):
    """An engine comes, or comes back."""

    engine_id: EngineId
    boot_id: Name
    job_types: Annotated[list[Name], Meta(min_length=1, max_length=100)]
    capacity: Annotated[int, Meta(ge=1, le=CAPACITY_MAX)]
    resume: Annotated[list[Resume], Meta(max_length=CAPACITY_MAX)] = []
    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)] | None = None


class Report(_Message, frozen=True):
    """What is said about a job names the lease that it is held under."""

    job_id: JobId
    lease: Lease


class Acked(Report, frozen=True):
    """The job has come; it runs, unless it waits for its turn in the engine."""

    started: bool = True


class Started(Report, frozen=True):
    """A job that was waiting in the engine runs."""


class Progress(Report, frozen=True, kw_only=True):
    """How far it is."""

    progress: Annotated[float, Meta(ge=0, le=100)]
    message: Annotated[str, Meta(max_length=1_000)] = ""


class Log(Report, frozen=True, kw_only=True):
    """What it says."""

    lines: Annotated[list[str], Meta(max_length=1_000)]


class Complete(Report, frozen=True):
    """It has succeeded."""

    result: Any | UnsetType = msgspec.UNSET


class Error(_Message, frozen=True):
    """What went wrong; an engine may say that trying again is of no use."""

    code: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,100}$")]
    message: Text = ""
    details: Any | UnsetType = msgspec.UNSET
    retryable: bool | None = None


class Failed(Report, frozen=True, kw_only=True):
    """It has failed; of a job that has not begun it is a refusal."""

    error: Error


class Heartbeat(_Message, frozen=True):
    """The engine lives, and has these jobs."""

    jobs: Annotated[list[JobId], Meta(max_length=10 * CAPACITY_MAX)] = []


class Drain(_Message, frozen=True):
    """The engine takes no more jobs; what it has not begun may go elsewhere."""


class Deadlines(_Message, frozen=True, forbid_unknown_fields=True):
    """Milliseconds that a job may be in each state; what is left out is as usual.

    A word that is not known is refused: whoever wrote it counts on a deadline.
    """

    queued: Span | None = None
    dispatched: Span | None = None
    running: Span | None = None


class Submit(_Message, frozen=True):
    """A job that somebody wants."""

    job_type: Name
    payload: dict[str, Any] = {}
    user_id: Name | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=100)] = 1
    deadlines: Deadlines = Deadlines()
    queue: Name | None = None


class Subscribe(_Message, frozen=True):
    """Somebody wants to hear of all jobs, of one, or of those of a user.

    `after` is the cursor of the last event they know; `names` says whether they still need the old
    ones.
    """

    job_id: JobId | None = None
    user_id: Name | None = None
    after: Cursor | None = None
    names: str = "both"


class Unsubscribe(_Message, frozen=True):
    """They have heard enough."""


class Replay(_Message, frozen=True):
    """Tell once more what happened between two instants (epoch milliseconds).

    With `speed` the pauses are as they were, divided by it; without, there are none.
    """

    since: Cursor
    until: Cursor
    speed: Annotated[float, Meta(gt=0, le=_SPEED_MAX)] | None = None
    job_id: JobId | None = None
    user_id: Name | None = None
