"""The named conditions of the table, as far as the record and the event itself can answer them.

The one that is missing here, `slot_ready`, is the supervisor's word at the moment of the order:
it is asked then and cannot be asked again of a history.
"""

from __future__ import annotations

from collections.abc import Callable

from detent.lifecycle.event import WorkerFacts
from detent.lifecycle.worker.record import Instance
from detent.lifecycle.worker.table import WORKER

_MEANINGS = {guard.name: guard.meaning for guard in WORKER.guards}


def needed(guard: str) -> str:
    """What the guard asks for, as the reason of a refusal."""
    return f"only if {_MEANINGS[guard]}"


def _is_governed(_instance: Instance, facts: WorkerFacts) -> bool:
    return facts.governor is not None


def _is_identified(_instance: Instance, facts: WorkerFacts) -> bool:
    return facts.pid is not None and facts.pid > 0 and facts.process_at is not None


HOLDS: dict[str, Callable[[Instance, WorkerFacts], bool]] = {
    "governed": _is_governed,
    "wanted": lambda instance, _facts: not instance.stop_requested,
    "suspendable": lambda instance, _facts: instance.suspendable,
    "spared": lambda instance, _facts: not instance.killed,
    "kill_ordered": lambda instance, _facts: instance.killed,
    "identified": _is_identified,
    "first_process": lambda instance, _facts: instance.pid is None,
}
