"""What is shown of a worker instance: in a row for people, and as data for programs."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from detent.cli.showing import at, cell, state_cell
from detent.engine.workers import Listed
from detent.lifecycle import WORKER


def who_of(one: Listed) -> Any:
    """What it said of itself, if it did."""
    return None if one.row is None else one.row.who


def slot_of(one: Listed) -> str:
    """Where it stands."""
    if one.instance is not None:
        return one.instance.slot
    who = who_of(one)
    return "" if who is None else "embedded" if who.embedded else str(who.slot)


def host_of(one: Listed) -> str:
    """Where it runs, as far as it told."""
    who = who_of(one)
    return "" if who is None or who.process is None else str(who.process.host)


def state_of(one: Listed) -> Text:
    """A state of the lifecycle, or a word of our own for one whose history nobody has told."""
    state = one.state.lower()
    is_known = state in {known.name for known in WORKER.states}
    return state_cell(state, WORKER) if is_known else cell(state)


def row_of(one: Listed, host: str) -> tuple[Text, ...]:
    """One line of the list."""
    who = who_of(one)
    pid = one.instance.pid if one.instance else None
    if pid is None and who is not None and who.process is not None:
        pid = who.process.pid
    beat = at(one.row.beat_at) if one.row else ""
    queues = ", ".join(who.queues or ()) if who else ""
    return (
        *map(cell, (one.id, slot_of(one), host, pid)),
        state_of(one),
        *map(cell, (at(one.since), beat, queues)),
    )


def data_of(one: Listed, host: str) -> dict[str, Any]:
    """The same for programs."""
    return {
        "id": one.id,
        "slot": slot_of(one),
        "supervisor": one.supervisor,
        "host": host,
        "state": one.state,
        "since": at(one.since),
        "instance": one.instance,
        "row": one.row,
    }
