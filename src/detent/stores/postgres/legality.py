"""What the lifecycle tables say, as SQL: the database refuses what no machine declares."""

from __future__ import annotations

from collections.abc import Iterable

from detent.lifecycle import JOB, MACHINES, WORKER, Machine
from detent.lifecycle.job.table import ENDED, IN_HANDS, PARKED, JobEvent
from detent.stores.pieces import RARE_STATES
from detent.stores.postgres.columns import WORDS

_HOTTEST = (
    ("available", JobEvent.CLAIM, "active"),
    ("active", JobEvent.COMPLETE, "completed"),
    (None, JobEvent.ENQUEUE, "available"),
)
"""The life of nearly every job."""
_HOT = (JobEvent.CLAIM, JobEvent.COMPLETE, JobEvent.ENQUEUE, JobEvent.DUE, JobEvent.FAIL)
_Triple = tuple[str | None, str, str | None]


def fill(text: str) -> str:
    """The text of a migration with its words in double braces replaced by lists and conditions."""
    for word, listed in _lists().items():
        text = text.replace(word, listed)
    return text


def _lists() -> dict[str, str]:
    moves = (move for machine in MACHINES.values() for move in _moves(machine))
    return {
        "{{job}}": WORDS["job"],
        "{{moving_sets}}": WORDS["moving_sets"],
        "{{job_states}}": _words(state.name for state in JOB.states),
        "{{job_in_hands}}": _words(sorted(IN_HANDS)),
        "{{job_parked}}": _words(sorted(PARKED)),
        "{{job_rare}}": _words(RARE_STATES),
        "{{job_ended}}": _words(sorted(ENDED)),
        "{{sound_states}}": "\n        ".join(map(_sound, _by_heat())),
        "{{worker_states}}": _words(state.name for state in WORKER.states),
        "{{ends}}": " OR ".join(_ends(machine) for machine in MACHINES.values()),
        "{{hot_moves}}": "\n        OR ".join(_is(*triple) for triple in _HOTTEST),
        "{{moves}}": ",\n            ".join(f"'{move}'" for move in moves),
    }


def _is(source: str | None, event: str, target: str) -> str:
    """The condition of one move of a job that is declared, as its table is asked first."""
    if (source, event, target) not in JOB.triples:
        raise ValueError(f"no job moves from {source} to {target} by {event}")
    asked = {"kind": JOB.name, "name": event, "target": target}
    words = [f"{name} = {_words([word])}" for name, word in asked.items()]
    come = "source IS NULL" if source is None else f"source = {_words([source])}"
    return f"({' AND '.join([*words, come])})"


def _by_heat() -> list[str]:
    """The states of jobs, those that nearly all go through first."""
    hot = [target for _, _, target in _HOTTEST]
    return sorted((state.name for state in JOB.states), key=lambda name: (name not in hot, name))


def _sound(state: str) -> str:
    """What goes for a job in this state: who is in hands has a lease, who has ended a moment."""
    lease = "NOT NULL" if state in IN_HANDS else "NULL"
    ended = "NOT NULL" if state in ENDED else "NULL"
    return f"WHEN state = {_words([state])} THEN lease IS {lease} AND ended_at IS {ended}"


def _ends(machine: Machine) -> str:
    kind, targets = _words([machine.name]), _words(sorted(machine.terminal))
    return f"(kind = {kind} AND target = ANY (ARRAY[{targets}]))"


def _moves(machine: Machine) -> Iterable[str]:
    """Its moves as texts, those that happen most first: old servers look from the start."""
    for source, event, target in sorted(machine.triples, key=_heat):
        words = (machine.name, event, source, target)
        yield " ".join("-" if word is None else _checked(word) for word in words)


def _heat(triple: _Triple) -> tuple[int, str]:
    hot = _HOT.index(JobEvent(triple[1])) if triple[1] in _HOT else len(_HOT)
    return hot, repr(triple)


def _words(words: Iterable[str]) -> str:
    # In an order that does not change by itself from one process to the next.
    return ", ".join(f"'{_checked(word)}'" for word in words)


def _checked(word: str) -> str:
    if not word.isidentifier():
        raise ValueError(f"{word!r} is no name of a state or event")
    return str.__str__(word)
