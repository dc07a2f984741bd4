"""The job lifecycle: eight states, every legal move, who may cause it, and the words for why.

This table is the heart of Detent. Guards, diagrams, documentation, database constraints and tests
are generated from it; it is frozen by a golden hash and changes only together with an ADR.
"""

from __future__ import annotations

from enum import StrEnum

from detent.lifecycle.machine import Actor, Amendment, Edge, Guard, Machine, Phase, State


class JobState(StrEnum):
    """The eight positions of a job; a job is always in exactly one."""

    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    PENDING = "pending"
    ACTIVE = "active"
    RETRYABLE = "retryable"
    COMPLETED = "completed"
    DISCARDED = "discarded"
    CANCELLED = "cancelled"


class JobEvent(StrEnum):
    """Everything that can be written into a job's history."""

    ENQUEUE = "enqueue"
    DUE = "due"
    CLAIM = "claim"
    DISPATCH = "dispatch"
    ACKNOWLEDGE = "acknowledge"
    COMPLETE = "complete"
    FAIL = "fail"
    SNOOZE = "snooze"
    TIME_OUT = "time_out"
    LOSE = "lose"
    HAND_BACK = "hand_back"
    REFUSE = "refuse"
    EXPIRE = "expire"
    DROP = "drop"
    CANCEL = "cancel"
    CANCEL_REQUESTED = "cancel_requested"
    CANCEL_SEEN = "cancel_seen"
    INTERRUPTED = "interrupted"
    HELD = "held"
    ACTIVATED = "activated"
    REPRIORITISED = "reprioritised"
    RESCHEDULED = "rescheduled"
    MOVED = "moved"
    CHECKPOINTED = "checkpointed"
    RECEIVED = "received"
    ANNOTATED = "annotated"
    ERASED = "erased"


class Cause(StrEnum):
    """Why a job ended (or was made again): the closed list of words an event may carry."""

    SUCCEEDED = "succeeded"
    EXHAUSTED = "exhausted"
    NOT_RETRYABLE = "not_retryable"
    DISCARD_ASKED = "discard_asked"
    DEAD_LETTER_ASKED = "dead_letter_asked"
    POISON = "poison"
    TTL = "ttl"
    DEADLINE = "deadline"
    OVERFLOW = "overflow"
    QUEUE_DELETED = "queue_deleted"
    REQUESTED = "requested"
    REPLACED = "replaced"
    WORKFLOW = "workflow"
    CONFIRMED = "confirmed"
    KILLED = "killed"
    ABANDONED = "abandoned"
    FORCED = "forced"
    FAIL = "fail"
    SNOOZE = "snooze"
    TIME_OUT = "time_out"
    LOSE = "lose"
    HAND_BACK = "hand_back"
    RERUN = "rerun"


_S, _E = JobState, JobEvent
_USER, _WORKER, _SYSTEM = (Actor.USER,), (Actor.WORKER,), (Actor.SYSTEM,)
_OWNER = (Actor.USER, Actor.SYSTEM)
_HOLDER = (Actor.WORKER, Actor.SYSTEM)
_ANYONE = (Actor.USER, Actor.WORKER, Actor.SYSTEM)

_OVER = (_S.COMPLETED, _S.DISCARDED, _S.CANCELLED)
_UNCLAIMED = (_S.SCHEDULED, _S.AVAILABLE, _S.RETRYABLE)
_LIVE = (_S.SCHEDULED, _S.AVAILABLE, _S.PENDING, _S.ACTIVE, _S.RETRYABLE)

JOB = Machine(
    "job",
    states=(
        State(_S.SCHEDULED, Phase.WAITING, "Waits for its start time."),
        State(_S.AVAILABLE, Phase.READY, "Ready: the next free worker may take it."),
        State(_S.PENDING, Phase.ASSIGNED, "Offered to one engine that has not confirmed it yet."),
        State(_S.ACTIVE, Phase.RUNNING, "A worker is running it under a lease."),
        State(_S.RETRYABLE, Phase.WAITING, "Left its worker unfinished and waits to go again."),
        State(_S.COMPLETED, Phase.DONE, "Its handler succeeded."),
        State(_S.DISCARDED, Phase.DONE, "It failed for good, or its time ran out."),
        State(_S.CANCELLED, Phase.DONE, "It was called off before it could complete."),
    ),
    edges=(
        Edge(_E.ENQUEUE, (None,), _S.SCHEDULED, _OWNER, "Created with a start in the future."),
        Edge(_E.ENQUEUE, (None,), _S.AVAILABLE, _OWNER, "Created, ready at once."),
        Edge(_E.DUE, (_S.SCHEDULED,), _S.AVAILABLE, _SYSTEM, "Its start time has come."),
        Edge(_E.DUE, (_S.RETRYABLE,), _S.AVAILABLE, _SYSTEM, "Its wait is over."),
        Edge(
            _E.CLAIM,
            (_S.AVAILABLE,),
            _S.ACTIVE,
            _WORKER,
            "A worker takes it and starts.",
            ("pull", "open", "unexpired", "holder_alive"),
        ),
        Edge(
            _E.DISPATCH,
            (_S.AVAILABLE,),
            _S.PENDING,
            _SYSTEM,
            "It is offered to an engine.",
            ("push", "open", "unexpired", "holder_alive"),
        ),
        Edge(
            _E.ACKNOWLEDGE,
            (_S.PENDING,),
            _S.ACTIVE,
            _WORKER,
            "The engine confirms that it has started.",
            ("lease",),
        ),
        Edge(
            _E.COMPLETE, (_S.ACTIVE,), _S.COMPLETED, _WORKER, "The handler succeeded.", ("lease",)
        ),
        Edge(
            _E.FAIL,
            (_S.ACTIVE,),
            _S.RETRYABLE,
            _WORKER,
            "The handler failed; the policy grants another try.",
            ("lease", "not_cancelling"),
        ),
        Edge(
            _E.FAIL,
            (_S.ACTIVE,),
            _S.DISCARDED,
            _HOLDER,
            "The handler failed and nothing is left.",
            ("lease",),
        ),
        Edge(
            _E.SNOOZE,
            (_S.ACTIVE,),
            _S.RETRYABLE,
            _WORKER,
            "The handler asks to be run later; no charge.",
            ("lease", "may_return", "not_cancelling"),
        ),
        Edge(
            _E.TIME_OUT,
            (_S.ACTIVE,),
            _S.RETRYABLE,
            _SYSTEM,
            "It ran longer than its limit; the policy grants another try.",
            ("not_cancelling",),
        ),
        Edge(
            _E.TIME_OUT,
            (_S.ACTIVE,),
            _S.DISCARDED,
            _SYSTEM,
            "It ran longer than its limit and nothing is left.",
            ("not_cancelling",),
        ),
        Edge(
            _E.TIME_OUT,
            (_S.PENDING,),
            _S.RETRYABLE,
            _SYSTEM,
            "The engine did not confirm it in time; the policy grants another try.",
        ),
        Edge(
            _E.TIME_OUT,
            (_S.PENDING,),
            _S.DISCARDED,
            _SYSTEM,
            "The engine did not confirm it in time and nothing is left.",
        ),
        Edge(
            _E.LOSE,
            (_S.ACTIVE,),
            _S.RETRYABLE,
            _HOLDER,
            "Its worker is gone; it goes back at once.",
            ("lease", "lease_over", "not_cancelling"),
        ),
        Edge(
            _E.LOSE,
            (_S.ACTIVE,),
            _S.DISCARDED,
            _HOLDER,
            "Its worker is gone and nothing is left, or it keeps killing its workers.",
            ("lease", "lease_over", "not_cancelling"),
        ),
        Edge(
            _E.LOSE,
            (_S.PENDING,),
            _S.RETRYABLE,
            _SYSTEM,
            "The engine it was offered to is gone; it goes back at once.",
            ("lease_over",),
        ),
        Edge(
            _E.LOSE,
            (_S.PENDING,),
            _S.DISCARDED,
            _SYSTEM,
            "The engine it was offered to is gone and nothing is left.",
            ("lease_over",),
        ),
        Edge(
            _E.HAND_BACK,
            (_S.ACTIVE,),
            _S.RETRYABLE,
            _HOLDER,
            "Its holder gives it back unharmed, as on a deploy; it keeps its place.",
            ("lease", "may_return", "not_cancelling"),
        ),
        Edge(
            _E.HAND_BACK,
            (_S.PENDING,),
            _S.RETRYABLE,
            _SYSTEM,
            "The offer is taken back; it keeps its place.",
            ("may_return",),
        ),
        Edge(
            _E.REFUSE,
            (_S.PENDING,),
            _S.RETRYABLE,
            _WORKER,
            "The engine declines it; the policy grants another try.",
            ("lease",),
        ),
        Edge(
            _E.REFUSE,
            (_S.PENDING,),
            _S.DISCARDED,
            _WORKER,
            "The engine declines it and nothing is left.",
            ("lease",),
        ),
        Edge(_E.EXPIRE, _UNCLAIMED, _S.DISCARDED, _SYSTEM, "It waited past its time to live."),
        Edge(_E.DROP, _UNCLAIMED, _S.DISCARDED, _SYSTEM, "Its queue overflowed or was deleted."),
        Edge(
            _E.CANCEL,
            (_S.SCHEDULED, _S.AVAILABLE, _S.PENDING, _S.RETRYABLE),
            _S.CANCELLED,
            _OWNER,
            "Called off before it ran.",
            ("cancellable",),
        ),
        Edge(
            _E.CANCEL,
            (_S.ACTIVE,),
            _S.CANCELLED,
            _ANYONE,
            "Called off while it ran; a worker may do so only after being asked to.",
            ("cancellable", "lease", "asked_if_worker"),
        ),
    ),
    amendments=(
        Amendment(
            _E.CANCEL_REQUESTED,
            (_S.ACTIVE,),
            _OWNER,
            "The worker is asked to stop.",
            ("cancellable",),
        ),
        Amendment(
            _E.CANCEL_SEEN, (_S.ACTIVE,), _HOLDER, "The worker has heard it.", ("lease", "asked")
        ),
        Amendment(
            _E.INTERRUPTED,
            (_S.ACTIVE,),
            _HOLDER,
            "The handler was interrupted.",
            ("lease",),
        ),
        Amendment(_E.HELD, _LIVE, _OWNER, "Kept from being claimed until it is activated."),
        Amendment(_E.ACTIVATED, _LIVE, _OWNER, "Released from a hold.", ("is_held",)),
        Amendment(_E.REPRIORITISED, _LIVE, _USER, "Given another priority; keeps its place."),
        Amendment(
            _E.RESCHEDULED, (_S.SCHEDULED, _S.RETRYABLE), _OWNER, "Given another start time."
        ),
        Amendment(_E.MOVED, _UNCLAIMED, _OWNER, "Put into another queue."),
        Amendment(
            _E.CHECKPOINTED,
            _LIVE,
            (Actor.WORKER, Actor.USER),
            "Progress saved for the next attempt.",
            ("lease", "checkpoint_allowed"),
        ),
        Amendment(
            _E.RECEIVED,
            (_S.PENDING,),
            _WORKER,
            "The engine has it in its own queue; the start limit takes over.",
            ("lease",),
        ),
        Amendment(_E.ANNOTATED, (*_LIVE, *_OVER), (Actor.USER, Actor.WORKER), "Metadata replaced."),
        Amendment(_E.ERASED, _OVER, _OWNER, "Payload and result erased; only the history stays."),
    ),
    guards=(
        Guard("pull", "the job is claimed from the store, not offered"),
        Guard("push", "the job is offered, not claimed from the store"),
        Guard("open", "neither held nor behind a pause, a closed step or a deleted queue"),
        Guard("unexpired", "its time to live has not passed"),
        Guard("holder_alive", "the lease of whoever takes it is alive"),
        Guard("lease", "a worker's word counts only under the lease of record"),
        Guard("lease_over", "the lease has ended, or its holder is marked lost or says so itself"),
        Guard("not_cancelling", "after a cancel request it is cancelled instead, at no charge"),
        Guard("may_return", "the profile lets a started job go back unharmed"),
        Guard("cancellable", "the profile lets this actor call off a single job"),
        Guard("asked", "a cancel was requested"),
        Guard("asked_if_worker", "a worker may cancel only after a cancel was requested"),
        Guard("is_held", "the job is held"),
        Guard("checkpoint_allowed", "a job that is not running takes checkpoints by profile"),
    ),
    causes=tuple(Cause),
)


def _in(*phases: Phase) -> frozenset[JobState]:
    return frozenset(JobState(state.name) for state in JOB.states if state.phase in phases)


ENDED = _in(Phase.DONE)
IN_HANDS = _in(Phase.ASSIGNED, Phase.RUNNING)
"""Somebody has it, under a lease."""
TIMED = _in(Phase.WAITING)
"""It waits for a moment, `run_at`."""
PARKED = _in(Phase.WAITING, Phase.READY)
"""Nobody has it, and it has not ended."""
