"""The worker lifecycle: its table, its record, its moves and how an end is judged."""

from detent.lifecycle.worker.evidence import doubted
from detent.lifecycle.worker.invariants import broken, faults
from detent.lifecycle.worker.moves import (
    Birth,
    change_health,
    create,
    end,
    hold,
    kill,
    lose,
    move,
    order_kill,
    ready,
    resume,
    spawned,
    start,
    stop,
    suspend,
)
from detent.lifecycle.worker.outcome import Ending, Exit, derive_final_status
from detent.lifecycle.worker.record import Instance, apply, fold
from detent.lifecycle.worker.steps import Accepted, Answer, Detail, Order, Unchanged
from detent.lifecycle.worker.table import (
    EDGE_EVENTS,
    EDGE_IDS,
    WORKER,
    Cause,
    Governor,
    Health,
    WorkerState,
)

__all__ = [
    "EDGE_EVENTS",
    "EDGE_IDS",
    "WORKER",
    "Accepted",
    "Answer",
    "Birth",
    "Cause",
    "Detail",
    "Ending",
    "Exit",
    "Governor",
    "Health",
    "Instance",
    "Order",
    "Unchanged",
    "WorkerState",
    "apply",
    "broken",
    "change_health",
    "create",
    "derive_final_status",
    "doubted",
    "end",
    "faults",
    "fold",
    "hold",
    "kill",
    "lose",
    "move",
    "order_kill",
    "ready",
    "resume",
    "spawned",
    "start",
    "stop",
    "suspend",
]
