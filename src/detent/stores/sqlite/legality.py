"""What the lifecycle tables say, as SQL conditions: the database refuses what no machine declares.

Conditions are chains of OR, the moves that happen most first. SQLite builds a list after IN anew
for every row it checks; a chain stops at the first match.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from detent.lifecycle import JOB, MACHINES, WORKER, Machine
from detent.lifecycle.dead_letters import BY_ATTEMPTS
from detent.lifecycle.job.table import ENDED, IN_HANDS, PARKED, Cause, JobEvent
from detent.lifecycle.machine import Phase
from detent.lifecycle.workflow import STEP, WORKFLOW
from detent.stores.pieces import RARE_STATES

_HOT = (JobEvent.CLAIM, JobEvent.COMPLETE, JobEvent.ENQUEUE, JobEvent.DUE, JobEvent.FAIL)
_Triple = tuple[str | None, str, str | None]


def fill(text: str) -> str:
    """The text of a migration with its words in double braces replaced by conditions."""
    for word, condition in _conditions().items():
        text = text.replace(word, condition)
    return text


@cache
def _conditions() -> dict[str, str]:
    ordered = sorted(JOB.states, key=lambda state: state.phase is not Phase.DONE)
    return {
        "{{job_states}}": _any_of("state", (state.name for state in ordered)),
        "{{job_in_hands}}": _any_of("state", IN_HANDS),
        "{{job_ended}}": _any_of("state", ENDED),
        "{{job_parked}}": _any_of("state", PARKED),
        "{{j.parked}}": _any_of("j.state", PARKED),
        "{{job_rare}}": _any_of("state", RARE_STATES),
        "{{workflow_states}}": _any_of("state", (state.name for state in WORKFLOW.states)),
        "{{step_states}}": _any_of("state", (state.name for state in STEP.states)),
        "{{worker_states}}": _any_of("state", (state.name for state in WORKER.states)),
        "{{is_letter}}": _letter(),
        "{{ends}}": _chain(_ends(machine) for machine in MACHINES.values()),
        "{{moves}}": _chain(_moves(machine) for machine in MACHINES.values()),
    }


def _letter() -> str:
    """What `is_letter` says of a discarded job `j`."""
    kept = (
        "EXISTS (SELECT 1 FROM detent_bodies AS b WHERE b.seq = j.seq"
        ' AND instr(b.retry, \'"on_exhaustion":"dead_letter"\') > 0)'
    )
    asked, tried = _any_of("j.cause", [Cause.DEAD_LETTER_ASKED]), _any_of("j.cause", BY_ATTEMPTS)
    return f"j.erased_at IS NULL AND ({asked} OR (({tried}) AND {kept}))"


def _ends(machine: Machine) -> str:
    return f"(kind = {_quoted(machine.name)} AND ({_any_of('target', machine.terminal)}))"


def _moves(machine: Machine) -> str:
    triples = sorted(machine.triples, key=_heat)
    return f"(NEW.kind = {_quoted(machine.name)} AND ({_chain(map(_move, triples))}))"


def _heat(triple: _Triple) -> tuple[int, str]:
    hot = _HOT.index(JobEvent(triple[1])) if triple[1] in _HOT else len(_HOT)
    return hot, repr(triple)


def _move(triple: _Triple) -> str:
    source, event, target = (_quoted(word) for word in triple)
    # The event comes first: it differs most, so most comparisons end there.
    return f"(NEW.name = {event} AND NEW.source IS {source} AND NEW.target IS {target})"


def _any_of(column: str, words: Iterable[str]) -> str:
    # In the order given, or of the alphabet where a set has none: the schema must not change by
    # itself from one process to the next.
    ordered = sorted(words) if isinstance(words, frozenset) else words
    return _chain(f"{column} = {_quoted(word)}" for word in ordered)


def _chain(conditions: Iterable[str]) -> str:
    return " OR ".join(conditions)


def _quoted(word: str | None) -> str:
    if word is None:
        return "NULL"
    if not word.isidentifier():
        raise ValueError(f"{word!r} is no name of a state or event")
    return f"'{word}'"
