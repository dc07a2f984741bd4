"""The worker lifecycle as data: ten states, one birth, seventeen edges, the words for why it ended.

A worker *instance* is one attempt at running a worker: it walks this table once and is never used
again. What ended it is told apart by intent and outcome: `stopped` obeyed, `finished` was done,
`failed` broke, `killed` would not stop and was forced.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from detent.lifecycle.machine import Actor, Amendment, Edge, Guard, Machine, Phase, State


class WorkerState(StrEnum):
    """Where an instance stands; the capitalised word is what people are shown."""

    CREATED = "created"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    SUSPENDED = "suspended"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    KILLED = "killed"

    @property
    def status(self) -> str:
        return self.value.capitalize()

    @property
    def is_terminal(self) -> bool:
        return self in _TERMINAL


_TERMINAL = frozenset(
    (WorkerState.STOPPED, WorkerState.FINISHED, WorkerState.FAILED, WorkerState.KILLED)
)


class Cause(StrEnum):
    """Why an instance was stopped or ended, kept beside its state."""

    NATURAL = "natural"
    REQUESTED = "requested"
    EXTERNAL_SIGNAL = "external_signal"
    GRACE_EXCEEDED = "grace_exceeded"
    OOM = "oom"
    SIGKILL_EXTERNAL = "sigkill_external"
    CRASH_SIGNAL = "crash_signal"
    EXIT_CODE = "exit_code"
    EXCEPTION = "exception"
    SPAWN_ERROR = "spawn_error"
    INIT_TIMEOUT = "init_timeout"
    INIT_KILLED = "init_killed"
    PROBE_FAILED = "probe_failed"
    EXITED_BEFORE_READY = "exited_before_ready"
    EXIT_WHILE_SUSPENDED = "exit_while_suspended"
    RECYCLED = "recycled"
    LOST = "lost"


class Governor(StrEnum):
    """What holds an instance in `pending`."""

    SCHEDULE = "schedule"
    BACKOFF = "backoff"
    BREAKER = "breaker"
    RATE = "rate"
    # A stop that came before the start: the instance passes through `pending` and nothing frees it.
    STOP = "stop"


class Health(StrEnum):
    """What the last probe said; beside the state, never instead of it."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


_CREATED, _PENDING, _STARTING, _RUNNING, _SUSPENDED = tuple(WorkerState)[:5]
_STOPPING, _STOPPED, _FINISHED, _FAILED, _KILLED = tuple(WorkerState)[5:]
_CALLER = (Actor.USER, Actor.SYSTEM)
# A process speaks for itself while it can; the supervisor that reaps it speaks for it otherwise.
_ITSELF = (Actor.WORKER, Actor.SYSTEM)

_STATES = (
    State(_CREATED, Phase.WAITING, "Built, not started; holds no process, thread or file."),
    State(_PENDING, Phase.WAITING, "Held back by a governor: schedule, backoff, breaker or rate."),
    State(_STARTING, Phase.ASSIGNED, "Initialising; takes no work until it has proven ready."),
    State(_RUNNING, Phase.RUNNING, "Doing its work."),
    State(_SUSPENDED, Phase.RUNNING, "Quiet on request: takes nothing in, keeps what it holds."),
    State(_STOPPING, Phase.RUNNING, "Asked to end; drains, flushes and closes within its grace."),
    State(_STOPPED, Phase.DONE, "Ended cleanly because it was asked to."),
    State(_FINISHED, Phase.DONE, "Ended cleanly because it was done."),
    State(_FAILED, Phase.DONE, "Ended with an error."),
    State(_KILLED, Phase.DONE, "Did not end within its grace and was forced."),
)

_GUARDS = (
    Guard("governed", "the governor that holds the start is named"),
    Guard("slot_ready", "the slot is free, wanted and valid, and its supervisor is not stopping"),
    Guard("wanted", "no stop has been requested"),
    Guard("suspendable", "the worker can go quiet and come back"),
    Guard("spared", "no order to kill was recorded; after one, only killed is left"),
    Guard("kill_ordered", "the order to kill was recorded before it was carried out"),
    Guard("identified", "the process is named by a positive pid and by its birth"),
    Guard("first_process", "no process has been recorded for this instance before"),
)

_BIRTH = Edge("create", (None,), _CREATED, _CALLER, "A slot builds a fresh instance.")

# The numbered edges: id, edge, and the cause it carries when the caller names none.
_NUMBERED: tuple[tuple[str, Edge, Cause | None], ...] = (
    (
        "E1",
        Edge("start", (_CREATED,), _STARTING, _CALLER, "Started at once.", ("slot_ready",)),
        None,
    ),
    (
        "E2",
        Edge(
            "hold", (_CREATED,), _PENDING, (Actor.SYSTEM,), "The start is held back.", ("governed",)
        ),
        None,
    ),
    (
        "E3",
        Edge(
            "release",
            (_PENDING,),
            _STARTING,
            _CALLER,
            "The governor lets it start.",
            ("slot_ready",),
        ),
        None,
    ),
    (
        "E4",
        Edge("cancel", (_PENDING,), _STOPPED, _CALLER, "Called off before it started."),
        Cause.REQUESTED,
    ),
    (
        "E5",
        Edge(
            "ready", (_STARTING,), _RUNNING, _ITSELF, "Initialised and proven ready.", ("wanted",)
        ),
        None,
    ),
    (
        "E6",
        Edge("fail", (_STARTING,), _FAILED, _ITSELF, "Could not be spawned or initialised."),
        Cause.EXCEPTION,
    ),
    (
        "E7",
        Edge("comply", (_STARTING,), _STOPPED, _ITSELF, "Obeyed a stop while initialising."),
        Cause.REQUESTED,
    ),
    (
        "E8",
        Edge(
            "suspend",
            (_RUNNING,),
            _SUSPENDED,
            _CALLER,
            "Asked to go quiet, and is: no unit of work in flight.",
            ("suspendable",),
        ),
        None,
    ),
    (
        "E9",
        Edge("stop", (_RUNNING,), _STOPPING, _CALLER, "Asked to end; the grace begins."),
        Cause.REQUESTED,
    ),
    (
        "E10",
        Edge("finish", (_RUNNING,), _FINISHED, _ITSELF, "Returned, its work done.", ("wanted",)),
        Cause.NATURAL,
    ),
    (
        "E11",
        Edge("fail", (_RUNNING,), _FAILED, _ITSELF, "Broke while working."),
        Cause.EXCEPTION,
    ),
    (
        "E12",
        Edge("interrupt", (_RUNNING,), _STOPPED, _ITSELF, "Obeyed a signal that was not ours."),
        Cause.EXTERNAL_SIGNAL,
    ),
    (
        "E13",
        Edge("resume", (_SUSPENDED,), _RUNNING, _CALLER, "Goes on where it went quiet."),
        None,
    ),
    (
        "E14",
        Edge("stop", (_SUSPENDED,), _STOPPING, _CALLER, "Asked to end while quiet; woken for it."),
        Cause.REQUESTED,
    ),
    (
        "E15",
        Edge("comply", (_STOPPING,), _STOPPED, _ITSELF, "Drained within its grace.", ("spared",)),
        Cause.REQUESTED,
    ),
    (
        "E16",
        Edge("fail", (_STOPPING,), _FAILED, _ITSELF, "Broke while draining.", ("spared",)),
        Cause.EXCEPTION,
    ),
    (
        "E17",
        Edge(
            "kill",
            (_STOPPING,),
            _KILLED,
            _CALLER,
            "Outlived its grace and was forced.",
            ("kill_ordered",),
        ),
        Cause.GRACE_EXCEEDED,
    ),
)

_AMENDMENTS = (
    Amendment(
        "hold_changed",
        (_PENDING,),
        (Actor.SYSTEM,),
        "Another governor holds it now, or until another time.",
        ("governed",),
    ),
    Amendment(
        "spawned",
        (_STARTING,),
        (Actor.SYSTEM,),
        "The process exists: its pid and birth.",
        ("identified", "first_process"),
    ),
    Amendment(
        "stop_requested", (_STARTING,), _CALLER, "Asked to end before it was ready; it may comply."
    ),
    Amendment("hastened", (_STARTING, _STOPPING), _CALLER, "The grace was cut; it never grows."),
    Amendment("kill_ordered", (_STOPPING,), _CALLER, "The order to force it, before it is obeyed."),
    Amendment("health_changed", (_RUNNING,), _ITSELF, "A probe answered differently than before."),
)

WORKER: Final = Machine(
    "worker",
    states=_STATES,
    edges=(_BIRTH, *(edge for _, edge, _ in _NUMBERED)),
    amendments=_AMENDMENTS,
    guards=_GUARDS,
    causes=tuple(Cause),
)

_PAIRS = {
    (WorkerState(source), WorkerState(edge.target)): (number, edge.event, cause)
    for number, edge, cause in _NUMBERED
    for source in edge.sources
    if source is not None
}
# Between two states there is at most one edge, so a pair of states names its event.
EDGE_IDS: Final = {pair: number for pair, (number, _, _) in _PAIRS.items()}
EDGE_EVENTS: Final = {pair: event for pair, (_, event, _) in _PAIRS.items()}
DEFAULT_CAUSES: Final = {pair: cause for pair, (_, _, cause) in _PAIRS.items()}
