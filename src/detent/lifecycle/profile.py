"""Profiles: what differs between the ways a job comes in, as one table of data.

A profile is fixed on the job when it is created. It says what a loss costs, how long a lease lasts,
how a running job is called off, what a deploy does to it and what "again" means. No surface hides
such a rule in code.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from detent.lifecycle.event import Charge

SECOND_US = 1_000_000
HEARTBEAT_LEASE_US = 15 * SECOND_US
"""How long a worker instance is trusted after its last beat."""
CANCEL_GRACE_US = 10 * SECOND_US
"""How long a worker may take to end a job after a cancel was requested."""
EXPIRED_CODE = "expired"
"""The error code of a job whose time to live has passed, whatever its profile."""
POISON_CODE = "POISON"
"""The error code of a job that was discarded because it keeps killing its workers."""
SPAN_US_MAX = 100 * 366 * 24 * 3600 * SECOND_US
"""The longest lease, limit or delay there can be: 100 years."""
_WIRE_LEASE_US = 1_800 * SECOND_US


class ProfileName(StrEnum):
    """The ways in."""

    PYTHON = "python"
    OJS = "ojs"
    REST = "rest"
    JOBNIK = "jobnik"
    ENGINE = "engine"


class Surface(StrEnum):
    """Who comes to claim: our own workers, or a worker that speaks one of the wire protocols."""

    OWN = "own"
    OJS = "ojs"
    JOBNIK = "jobnik"
    ENGINE = "engine"


class Delivery(StrEnum):
    """How a job reaches its worker: claimed from the store, or offered to an engine or broker."""

    PULL = "pull"
    PUSH = "push"


class CancelMode(StrEnum):
    """What cancelling a running job does."""

    NOW = "now"
    COOPERATIVE = "cooperative"
    THROUGH_WORKFLOW = "through_workflow"


class Drain(StrEnum):
    """What happens to a running job whose worker is being stopped and that cannot finish."""

    HAND_BACK = "hand_back"
    FAIL = "fail"


class Again(StrEnum):
    """What running an ended job once more means."""

    NEW_JOB = "new_job"
    ALIAS = "alias"
    NEVER = "never"


class Deadlines(msgspec.Struct, frozen=True):
    """How long a job may stay in each of these states; `None` is for ever."""

    available_us: int | None = None
    pending_us: int | None = None
    active_us: int | None = None


class Profile(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: ProfileName
    allowed: int
    allowed_is_fixed: bool
    loss: Charge
    losses_allowed: int
    # Whether the end of a wire lease can be the loss that makes the job poison. A lease that only
    # ran out proves nothing about its worker, and some protocols have no way to renew it.
    poisoned_over_wire: bool
    lease_us: int
    cancel: CancelMode
    drain: Drain
    again: Again
    delivery: Delivery
    deliveries: tuple[Delivery, ...]
    deadlines: Deadlines
    claimed_over: tuple[Surface, ...]
    checkpoints_anytime: bool
    keeps_place: bool
    codes: dict[tuple[str, str], str]
    result_us: int | None = None
    """How long a result is kept after the end, unless the job says; `None` is for ever."""

    def code(self, state: str, event: str) -> str:
        """The error code that this event carries when Detent itself causes it in this state."""
        return self.codes[(state, event)]


def _codes(*, lost: str, unconfirmed: str, late: str, stuck: str) -> dict[tuple[str, str], str]:
    return {
        ("active", "lose"): lost,
        ("pending", "lose"): lost,
        ("pending", "time_out"): unconfirmed,
        ("active", "time_out"): late,
        ("available", "deadline"): stuck,
    }


_OWN_CODES = _codes(
    lost="lease_lost", unconfirmed="not_acknowledged", late="timeout", stuck="queue_timeout"
)
_OJS_CODES = _codes(
    lost="visibility_timeout", unconfirmed="not_acknowledged", late="timeout", stuck="queue_timeout"
)
_REST_CODES = _codes(
    lost="WORKER_LOST", unconfirmed="WORKER_LOST", late="TIMEOUT", stuck="QUEUE_TIMEOUT"
)
_ENGINE_CODES = _codes(
    lost="ENGINE_DISCONNECTED",
    unconfirmed="ENGINE_NOT_RESPONDING",
    late="JOB_TIMEOUT",
    stuck="QUEUE_TIMEOUT",
)
_ENGINE_DEADLINES = Deadlines(30 * SECOND_US, 10 * SECOND_US, 60 * SECOND_US)

PROFILES: dict[str, Profile] = {
    row.name: row
    for row in (
        Profile(
            name=ProfileName.PYTHON,
            allowed=3,
            allowed_is_fixed=False,
            loss=Charge.LOSS,
            losses_allowed=3,
            poisoned_over_wire=True,
            lease_us=_WIRE_LEASE_US,
            cancel=CancelMode.COOPERATIVE,
            drain=Drain.HAND_BACK,
            again=Again.NEW_JOB,
            delivery=Delivery.PULL,
            deliveries=(Delivery.PULL, Delivery.PUSH),
            deadlines=Deadlines(),
            claimed_over=(Surface.OWN, Surface.OJS),
            checkpoints_anytime=False,
            keeps_place=False,
            codes=_OWN_CODES,
        ),
        Profile(
            name=ProfileName.OJS,
            allowed=3,
            allowed_is_fixed=False,
            loss=Charge.BOTH,
            losses_allowed=3,
            poisoned_over_wire=True,
            lease_us=_WIRE_LEASE_US,
            cancel=CancelMode.NOW,
            drain=Drain.HAND_BACK,
            again=Again.ALIAS,
            delivery=Delivery.PULL,
            deliveries=(Delivery.PULL, Delivery.PUSH),
            deadlines=Deadlines(),
            claimed_over=(Surface.OWN, Surface.OJS),
            checkpoints_anytime=True,
            keeps_place=False,
            codes=_OJS_CODES,
            result_us=7 * 86_400 * SECOND_US,
        ),
        Profile(
            name=ProfileName.REST,
            allowed=1,
            allowed_is_fixed=True,
            loss=Charge.BOTH,
            losses_allowed=3,
            poisoned_over_wire=True,
            lease_us=_WIRE_LEASE_US,
            cancel=CancelMode.COOPERATIVE,
            drain=Drain.FAIL,
            again=Again.NEW_JOB,
            delivery=Delivery.PULL,
            deliveries=(Delivery.PULL, Delivery.PUSH),
            deadlines=Deadlines(),
            claimed_over=(Surface.OWN, Surface.OJS),
            checkpoints_anytime=False,
            keeps_place=False,
            codes=_REST_CODES,
        ),
        Profile(
            name=ProfileName.JOBNIK,
            allowed=1,
            allowed_is_fixed=False,
            loss=Charge.LOSS,
            losses_allowed=3,
            poisoned_over_wire=False,
            lease_us=_WIRE_LEASE_US,
            cancel=CancelMode.THROUGH_WORKFLOW,
            drain=Drain.HAND_BACK,
            again=Again.NEVER,
            delivery=Delivery.PULL,
            deliveries=(Delivery.PULL, Delivery.PUSH),
            deadlines=Deadlines(),
            claimed_over=(Surface.OWN, Surface.JOBNIK),
            checkpoints_anytime=False,
            keeps_place=True,
            codes=_OWN_CODES,
        ),
        Profile(
            name=ProfileName.ENGINE,
            allowed=1,
            allowed_is_fixed=False,
            loss=Charge.BOTH,
            losses_allowed=3,
            poisoned_over_wire=True,
            lease_us=_WIRE_LEASE_US,
            cancel=CancelMode.COOPERATIVE,
            drain=Drain.HAND_BACK,
            again=Again.NEW_JOB,
            delivery=Delivery.PUSH,
            deliveries=(Delivery.PUSH,),
            deadlines=_ENGINE_DEADLINES,
            claimed_over=(Surface.ENGINE,),
            checkpoints_anytime=False,
            keeps_place=False,
            codes=_ENGINE_CODES,
        ),
    )
}
