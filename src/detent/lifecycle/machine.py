"""A lifecycle as data: states, edges, amendments and who may cause them.

A `Machine` is a table that checks itself when it is built. `fire` answers one question, "may this
actor move this state along this event to that target?", with the transition or with a refusal that
says what would have been allowed. It decides nothing else: policy chooses the event and the target,
the table says whether that is legal.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from detent.errors import BadMachine, IllegalTransition


class Phase(StrEnum):
    """What a state means to somebody who does not know the machine."""

    WAITING = "waiting"
    READY = "ready"
    ASSIGNED = "assigned"
    RUNNING = "running"
    DONE = "done"


class Actor(StrEnum):
    """Who may cause a move: any caller, whoever does the work, or Detent itself."""

    USER = "user"
    WORKER = "worker"
    SYSTEM = "system"


class State(msgspec.Struct, frozen=True):
    """One named position; a state of phase `done` is terminal."""

    name: str
    phase: Phase
    meaning: str

    @property
    def is_terminal(self) -> bool:
        return self.phase is Phase.DONE


class Guard(msgspec.Struct, frozen=True):
    """A named condition that an edge asks for beyond state and actor."""

    name: str
    meaning: str


class Edge(msgspec.Struct, frozen=True):
    """A declared move. A source of `None` means that the record does not exist yet."""

    event: str
    sources: tuple[str | None, ...]
    target: str
    actors: tuple[Actor, ...]
    meaning: str
    guards: tuple[str, ...] = ()


class Amendment(msgspec.Struct, frozen=True):
    """A declared, versioned event that leaves the state alone."""

    event: str
    states: tuple[str, ...]
    actors: tuple[Actor, ...]
    meaning: str
    guards: tuple[str, ...] = ()


class Transition(msgspec.Struct, frozen=True):
    """An accepted move; `target` is `None` for an amendment."""

    source: str | None
    event: str
    target: str | None
    actor: Actor
    guards: tuple[str, ...]


class Refusal(msgspec.Struct, frozen=True):
    """A move that is not allowed, with what would be: `code` is stable, the rest are the facts."""

    code: str
    machine: str
    state: str | None
    event: str
    target: str | None
    actor: str
    allowed: tuple[str, ...] = ()
    detail: str = ""

    @property
    def message(self) -> str:
        goal = f" to {self.target}" if self.target else ""
        may = ", ".join(self.allowed) or "nothing"
        why = self.detail or _WHY.get(self.code, self.code)
        return (
            f"{self.machine}: {self.actor} may not {self.event} from {self.state or '(new)'}{goal}:"
            f" {why}. Allowed here for {self.actor}: {may}."
        )

    def error(self) -> IllegalTransition:
        """This refusal as an exception, for callers that cannot go on without the move."""
        return IllegalTransition(self.message, **msgspec.structs.asdict(self))


_WHY = {
    "final": "that state is final and no edge leaves it",
    "no_edge": "the lifecycle declares no such move",
    "wrong_actor": "the move exists, but not for this actor",
}


class Machine:
    """A checked lifecycle table with constant-time answers; once built it cannot be changed."""

    __slots__ = (
        "_accepted",
        "_allowed",
        "_places",
        "_refused",
        "_triples",
        "amendments",
        "causes",
        "edges",
        "guards",
        "name",
        "states",
        "terminal",
    )

    def __init__(
        self,
        name: str,
        *,
        states: Sequence[State],
        edges: Sequence[Edge],
        amendments: Sequence[Amendment] = (),
        guards: Sequence[Guard] = (),
        causes: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.states = tuple(states)
        self.edges = tuple(edges)
        self.amendments = tuple(amendments)
        self.guards = tuple(guards)
        self.causes = tuple(str(cause) for cause in causes)
        self.terminal = frozenset(state.name for state in states if state.is_terminal)
        self._check()
        self._accepted = {
            (one.source, one.event, one.target, actor): one for one, actor in self._expanded()
        }
        self._refused: dict[tuple[str | None, str, str | None, Actor], Refusal] = {}
        self._places: set[str | None] = {None, *(state.name for state in states)}
        self._triples = {(one.source, one.event, one.target) for one in self._accepted.values()}
        # Last, because the guard below takes it for the sign that the table is complete.
        self._allowed = self._what_is_allowed()

    def __setattr__(self, name: str, value: object) -> None:
        """Set once, while it is built: everyone in the process shares this table."""
        if hasattr(self, "_allowed"):
            raise AttributeError(f"a machine cannot be changed: {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a machine cannot be changed: {name}")

    def fire(
        self, state: str | None, event: str, target: str | None, actor: Actor
    ) -> Transition | Refusal:
        """The declared move, or why there is none. A target of `None` asks for an amendment."""
        key = (state, event, target, actor)
        found = self._accepted.get(key)
        if found is not None:
            return found
        return self._refused.get(key) or self._undeclared(key)

    @property
    def triples(self) -> frozenset[tuple[str | None, str, str | None]]:
        """Every declared (source, event, target), amendments with a target of `None`."""
        return frozenset(self._triples)

    @property
    def remembered(self) -> int:
        """How many refusals are kept for the next time they are asked for; bounded by the table."""
        return len(self._refused)

    @property
    def initial(self) -> frozenset[str]:
        """The states a record can be born into."""
        return frozenset(edge.target for edge in self.edges if None in edge.sources)

    @property
    def events(self) -> tuple[str, ...]:
        """Every event name, edges first, in the order of the table."""
        names = [edge.event for edge in self.edges] + [one.event for one in self.amendments]
        return tuple(dict.fromkeys(names))

    def state(self, name: str) -> State:
        """The state of that name; an unknown one is a programming error."""
        return next(state for state in self.states if state.name == name)

    def fingerprint(self) -> str:
        """A hash over everything the table says; frozen by a test, changed only with an ADR."""
        table = (self.name, self.states, self.edges, self.amendments, self.guards, self.causes)
        return hashlib.sha256(msgspec.json.encode(table)).hexdigest()

    def refusal(
        self,
        code: str,
        state: str | None,
        event: str,
        actor: Actor,
        *,
        target: str | None = None,
        detail: str = "",
    ) -> Refusal:
        """A refusal for a reason that the table itself does not know, in the same words."""
        allowed = self._allowed.get((state, actor), ())
        return Refusal(code, self.name, state, event, target, actor, allowed, detail)

    def _undeclared(self, key: tuple[str | None, str, str | None, Actor]) -> Refusal:
        state, event, target, actor = key
        if (state, event, target) in self._triples:
            code = "wrong_actor"
        else:
            code = "final" if state in self.terminal else "no_edge"
        refusal = self.refusal(code, state, event, actor, target=target)
        # Only questions made of our own words are remembered: those are finitely many.
        if event in self.events and {state, target} <= self._places:
            self._refused[key] = refusal
        return refusal

    def _expanded(self) -> Iterator[tuple[Transition, Actor]]:
        for edge in self.edges:
            for source in edge.sources:
                for actor in edge.actors:
                    yield Transition(source, edge.event, edge.target, actor, edge.guards), actor
        for one in self.amendments:
            for state in one.states:
                for actor in one.actors:
                    yield Transition(state, one.event, None, actor, one.guards), actor

    def _what_is_allowed(self) -> dict[tuple[str | None, Actor], tuple[str, ...]]:
        allowed: dict[tuple[str | None, Actor], list[str]] = {}
        for one, actor in self._expanded():
            words = f"{one.event} -> {one.target}" if one.target else one.event
            allowed.setdefault((one.source, actor), []).append(words)
        return {key: tuple(words) for key, words in allowed.items()}

    def _check(self) -> None:
        names = [state.name for state in self.states]
        self._need(all(names) and all(self.events), "a state or an event has no name")
        self._need(len(names) == len(set(names)), "a state is declared twice")
        self._need(bool(self.initial), "nothing can be born: no edge starts from (new)")
        self._need_known_names(set(names))
        self._need_no_duplicates()
        leaving = {source for edge in self.edges for source in edge.sources}
        self._need(not leaving & self.terminal, "an edge leaves a terminal state")
        self._need(self._reachable() == set(names), "a state cannot be reached")
        self._need(
            set(names) - self.terminal <= leaving, "a state that is not terminal has no way out"
        )
        endless = sorted(set(names) - self._ending())
        self._need(not endless, f"no end can be reached from {endless}")

    def _need_known_names(self, names: set[str]) -> None:
        used = {edge.target for edge in self.edges}
        used |= {source for edge in self.edges for source in edge.sources if source is not None}
        used |= {state for one in self.amendments for state in one.states}
        self._need(used <= names, f"unknown states {sorted(used - names)}")
        moves: list[Edge | Amendment] = [*self.edges, *self.amendments]
        asked = {guard for one in moves for guard in one.guards}
        declared = {guard.name for guard in self.guards}
        self._need(asked == declared, f"guards do not match: {sorted(asked ^ declared)}")
        self._need(all(one.actors for one in moves), "a move for nobody")

    def _need_no_duplicates(self) -> None:
        triples: list[tuple[str | None, str, str | None]] = [
            (source, edge.event, edge.target) for edge in self.edges for source in edge.sources
        ]
        triples += [(state, one.event, None) for one in self.amendments for state in one.states]
        self._need(len(triples) == len(set(triples)), "a (source, event, target) is declared twice")

    def _reachable(self) -> set[str]:
        seen: set[str | None] = {None}
        while grown := {e.target for e in self.edges if seen & set(e.sources)} - seen:
            seen |= grown
        return {name for name in seen if name is not None}

    def _ending(self) -> set[str]:
        """The states from which a terminal one can be reached, terminal ones included."""
        seen: set[str | None] = set(self.terminal)
        while grown := {s for e in self.edges if e.target in seen for s in e.sources} - seen:
            seen |= grown
        return {name for name in seen if name is not None}

    def _need(self, holds: bool, fault: str) -> None:
        if not holds:
            raise BadMachine(f"machine {self.name}: {fault}", machine=self.name)
