"""Everything that can be asked of a job. What becomes of it, `decide` says.

Commands of a worker name the lease they speak under. A wire client that knows no leases sends
`None`; then the lease of record is meant, provided the job is held over the wire and the `holder`
named, if any, is the holder of record. `event` is what a command asks to be written; which target
it gets, or whether another event is written instead, is for `decide` to say.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from detent.lifecycle.job.table import Cause, JobEvent
from detent.lifecycle.profile import Deadlines


class Enqueue(msgspec.Struct, frozen=True, kw_only=True):
    """Create a job. What is `None` comes from the profile."""

    event: ClassVar[JobEvent] = JobEvent.ENQUEUE
    tenant: str = ""
    id: str
    profile: str
    queue: str = "default"
    priority: int = 0
    delivery: str | None = None
    run_at: int | None = None
    expires_at: int | None = None
    allowed: int | None = None
    losses_allowed: int | None = None
    deadlines: Deadlines | None = None
    held: bool = False
    rerun_of: str | None = None
    workflow: str | None = None
    step: str | None = None


class Claim(msgspec.Struct, frozen=True):
    """A worker takes the job. `wire`: held by a lease row of its own rather than by a heartbeat."""

    event: ClassVar[JobEvent] = JobEvent.CLAIM
    lease: str
    holder: str
    wire: bool = False
    lease_us: int | None = None


class Dispatch(msgspec.Struct, frozen=True):
    """The job is offered to the engine `holder`."""

    event: ClassVar[JobEvent] = JobEvent.DISPATCH
    lease: str
    holder: str
    wire: bool = False
    lease_us: int | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a holder says about the job it holds."""

    event: ClassVar[JobEvent]
    lease: str | None = None
    holder: str | None = None


class Acknowledge(Report, frozen=True):
    """The engine has started it."""

    event: ClassVar[JobEvent] = JobEvent.ACKNOWLEDGE


class Receive(Report, frozen=True):
    """The engine has queued it locally and promises to start within `start_us`."""

    event: ClassVar[JobEvent] = JobEvent.RECEIVED
    start_us: int


class Complete(Report, frozen=True, gc=False):
    """The handler succeeded; `digest` is that of the result."""

    event: ClassVar[JobEvent] = JobEvent.COMPLETE
    digest: str | None = None


class Fail(Report, frozen=True):
    """The handler failed with `code`; the context carries the verdict of the retry policy."""

    event: ClassVar[JobEvent] = JobEvent.FAIL
    code: str
    digest: str | None = None


class Refuse(Report, frozen=True):
    """The engine declines the offer."""

    event: ClassVar[JobEvent] = JobEvent.REFUSE
    code: str


class Snooze(Report, frozen=True):
    """The handler asks to be run again after `delay_us`, at no charge."""

    event: ClassVar[JobEvent] = JobEvent.SNOOZE
    delay_us: int


class HandBack(Report, frozen=True):
    """The holder gives the job back unharmed; others may have it after `delay_us`."""

    event: ClassVar[JobEvent] = JobEvent.HAND_BACK
    delay_us: int = 0


class Lose(Report, frozen=True):
    """The holder is gone; `code` overrides the profile's."""

    event: ClassVar[JobEvent] = JobEvent.LOSE
    code: str | None = None


class ConfirmCancel(Report, frozen=True):
    """The worker ended the job because it was asked to: confirmed, killed or abandoned."""

    event: ClassVar[JobEvent] = JobEvent.CANCEL
    cause: Cause = Cause.CONFIRMED


class SeeCancel(Report, frozen=True):
    """The worker has heard the cancel request."""

    event: ClassVar[JobEvent] = JobEvent.CANCEL_SEEN


class Interrupt(Report, frozen=True):
    """The handler was interrupted."""

    event: ClassVar[JobEvent] = JobEvent.INTERRUPTED


class Checkpoint(Report, frozen=True):
    """Progress was saved; `digest` is that of its body."""

    event: ClassVar[JobEvent] = JobEvent.CHECKPOINTED
    digest: str


class Cancel(msgspec.Struct, frozen=True):
    """Call the job off, in the mode of its profile; `force` (the system's) does not ask first."""

    event: ClassVar[JobEvent] = JobEvent.CANCEL
    cause: Cause = Cause.REQUESTED
    force: bool = False


class Hold(msgspec.Struct, frozen=True):
    """Keep it from being claimed."""

    event: ClassVar[JobEvent] = JobEvent.HELD


class Activate(msgspec.Struct, frozen=True):
    """Release it from a hold."""

    event: ClassVar[JobEvent] = JobEvent.ACTIVATED


class Reprioritise(msgspec.Struct, frozen=True):
    """Give it another priority."""

    event: ClassVar[JobEvent] = JobEvent.REPRIORITISED
    priority: int


class Reschedule(msgspec.Struct, frozen=True):
    """Give it another start time."""

    event: ClassVar[JobEvent] = JobEvent.RESCHEDULED
    run_at: int


class Move(msgspec.Struct, frozen=True):
    """Put it into another queue."""

    event: ClassVar[JobEvent] = JobEvent.MOVED
    queue: str


class Annotate(msgspec.Struct, frozen=True):
    """Its metadata was replaced; `digest` is that of the new body."""

    event: ClassVar[JobEvent] = JobEvent.ANNOTATED
    digest: str


class Erase(msgspec.Struct, frozen=True):
    """Erase payload and result; the history stays."""

    event: ClassVar[JobEvent] = JobEvent.ERASED


class Drop(msgspec.Struct, frozen=True):
    """Discard it because its queue overflowed or was deleted."""

    event: ClassVar[JobEvent] = JobEvent.DROP
    cause: Cause = Cause.OVERFLOW


Command: TypeAlias = (
    Enqueue
    | Claim
    | Dispatch
    | Report
    | Cancel
    | Hold
    | Activate
    | Reprioritise
    | Reschedule
    | Move
    | Annotate
    | Erase
    | Drop
)
