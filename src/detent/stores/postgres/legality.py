"""What the lifecycle tables say, as SQL conditions: the database refuses what no machine declares.

The conditions are chains of OR, the moves that happen most first, so that most rows pass at the first
few comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable

from detent.lifecycle import JOB, MACHINES, Machine
from detent.lifecycle.job.table import ENDED, IN_HANDS, JobEvent

__all__ = ["fill"]

_HOT = (JobEvent.CLAIM, JobEvent.COMPLETE, JobEvent.ENQUEUE, JobEvent.DUE, JobEvent.FAIL)
_Triple = tuple[str | None, str, str | None]


def fill(text: str) -> str:
    """The text of a migration with its words in double braces replaced by conditions."""
    for word, condition in _conditions().items():
        text = text.replace(word, condition)
    return text


def _conditions() -> dict[str, str]:
    return {
        "{{job_states}}": _any_of("state", (state.name for state in JOB.states)),
        "{{job_in_hands}}": _any_of("state", IN_HANDS),
        "{{job_ended}}": _any_of("state", ENDED),
        "{{ends}}": _chain(_ends(machine) for machine in MACHINES.values()),
        "{{moves}}": _chain(_moves(machine) for machine in MACHINES.values()),
    }


def _ends(machine: Machine) -> str:
    return f"(kind = {_quoted(machine.name)} AND ({_any_of('target', machine.terminal)}))"


def _moves(machine: Machine) -> str:
    triples = sorted(machine.triples, key=_heat)
    return f"(kind = {_quoted(machine.name)} AND ({_chain(map(_move, triples))}))"


def _heat(triple: _Triple) -> tuple[int, str]:
    hot = _HOT.index(JobEvent(triple[1])) if triple[1] in _HOT else len(_HOT)
    return hot, repr(triple)


def _move(triple: _Triple) -> str:
    source, event, target = triple
    # The event comes first: it differs most, so most comparisons end there.
    return f"(name = {_quoted(event)} AND {_is('source', source)} AND {_is('target', target)})"


def _is(column: str, word: str | None) -> str:
    return f"{column} IS NULL" if word is None else f"{column} = {_quoted(word)}"


def _any_of(column: str, words: Iterable[str]) -> str:
    # In the order given, or of the alphabet where a set has none: the schema must not change by
    # itself from one process to the next.
    ordered = sorted(words) if isinstance(words, frozenset) else words
    return _chain(f"{column} = {_quoted(word)}" for word in ordered)


def _chain(conditions: Iterable[str]) -> str:
    return " OR ".join(conditions)


def _quoted(word: str) -> str:
    if not word.isidentifier():
        raise ValueError(f"{word!r} is no name of a state or event")
    return f"'{word}'"
