"""Makes the units of new jobs that a caller writes in a transaction of its own.

Jobs that nothing can be in the way of share a unit, because each costs a savepoint. One with a key
has a unit of its own: that its key is taken is its own affair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from detent.engine.asks import Ask, OnConflict, born, is_keyed
from detent.engine.enqueueing import Answer, Request, answered, hear
from detent.engine.identity import Identity
from detent.engine.secrets import Secrets
from detent.errors import BadOption
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.stores.api import RECORDS_MAX, New, Outcome, Unit


class Piece:
    """A unit, and the requests that are answered by what becomes of it."""

    def __init__(self, unit: Unit, requests: Sequence[Request]) -> None:
        self.unit = unit
        self._requests = requests

    def hear(self, outcome: Outcome) -> None:
        """Answer the requests by what became of the unit."""
        for request, new in zip(self._requests, self.unit.new, strict=True):
            hear(request, new.job, outcome)


class Joining:
    """Requests on their way into a transaction; all of them are decided before one is written."""

    def __init__(
        self, asks: Sequence[Ask], by: By, identity: Identity, secrets: Secrets, now: int
    ) -> None:
        self._by = by
        self._identity = identity
        self._secrets = secrets
        self.now = now
        self._requests = [self._opened(ask) for ask in asks]
        self.pieces = [self._piece(some) for some in self._together()]

    def answers(self) -> list[Answer]:
        """The answer to each request, in order; they hold if the transaction does."""
        return [answered(request) for request in self._requests]

    def _opened(self, ask: Ask) -> Request:
        if ask.unique is not None and ask.unique.on_conflict is OnConflict.REPLACE:
            why = "A job that replaces another ends it, which a transaction of your own cannot do"
            raise BadOption(f"{ask.type}: {why}: enqueue it without conn", option="unique")
        job_id = ask.id or self._identity.id()
        return Request(self._secrets.sealed(ask, job_id), self._identity.id(), job_id)

    def _together(self) -> Iterator[list[Request]]:
        plain = [one for one in self._requests if not is_keyed(one.ask)]
        for first in range(0, len(plain), RECORDS_MAX):
            yield plain[first : first + RECORDS_MAX]
        yield from ([one] for one in self._requests if is_keyed(one.ask))

    def _piece(self, requests: list[Request]) -> Piece:
        command_id = requests[0].command_id
        new = tuple(self._born(request, command_id) for request in requests)
        return Piece(Unit(command_id, new=new), requests)

    def _born(self, request: Request, command_id: str) -> New:
        place = self._identity.place()
        ctx = j.Context(self._by, command_id, place=place, reason=request.ask.reason)
        new = born(request.ask, request.job_id, self.now, ctx)
        if isinstance(new, Refusal):
            raise new.error()
        return new
