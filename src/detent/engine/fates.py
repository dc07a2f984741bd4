"""Knows which new jobs of a call are stored, so that an error can tell its caller.

A call with many jobs is several steps, each all or nothing. When one fails no other is begun, those
that are under way are waited for, and the caller hears of all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from detent.errors import StoreBroken, StoreError, StoreUnavailable, Unstorable
from detent.stores.api import Committed, Outcome, Own
from detent.stores.births import Births

_UNSURE = (StoreUnavailable, StoreBroken)
"""After these nobody knows whether the step was committed; after all others it was not."""


class Fates:
    """The jobs of one call that are stored, those that may be, and the first error there was."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._stored: list[str] = []
        self._unknown: list[str] = []
        self._error: Exception | None = None

    @property
    def is_bad(self) -> bool:
        """Whether something has gone wrong, so that nothing more should be begun."""
        return self._error is not None

    def stored(self, ids: Iterable[str]) -> None:
        """These are durable."""
        self._stored += ids

    def failed(self, ids: Iterable[str], error: Exception) -> None:
        """The step of these has failed."""
        if isinstance(error, _UNSURE):
            self._unknown += ids
        self._error = self._error or error

    def hear(self, births: Births, outcomes: Sequence[Outcome]) -> None:
        """Nothing is in the way of a job whose id was made for it: all of them are stored."""
        if all(isinstance(one, Committed | Own) for one in outcomes):
            self.stored(births.ids)
            return
        for name, outcome in zip(births.ids, outcomes, strict=True):
            if isinstance(outcome, Committed | Own):
                self.stored([name])
            else:
                self.failed([name], unstored(name, outcome))

    def need_all(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            raise self._known(self._error)

    def _known(self, error: Exception) -> Exception:
        """The error with what is known about all of them, unless it is none of a store."""
        if not isinstance(error, StoreError):
            return error
        # Others may have been told of the same error: what is known of our jobs is not theirs.
        known = {"enqueued": sorted(self._stored), "unknown": sorted(self._unknown)}
        told = type(error)(f"{error.message}{self._counted()}", **{**error.fields, **known})
        told.__cause__ = error.__cause__
        return told.with_traceback(error.__traceback__)

    def _counted(self) -> str:
        stored, unknown = len(self._stored), len(self._unknown)
        if self._total == 1:
            return f". Whether job {self._unknown[0]} is stored is not known" if unknown else ""
        known = f"Of {self._total} jobs {stored} are stored and {unknown} may be"
        return f". {known}: `enqueued` and `unknown` in the fields have their ids"


def need_stored(births: Births, outcomes: Sequence[Outcome]) -> None:
    """The same for a call that is one step."""
    if all(isinstance(one, Committed | Own) for one in outcomes):
        return
    fates = Fates(len(births))
    fates.hear(births, outcomes)
    fates.need_all()


def need_heard(births: Births, error: StoreError) -> NoReturn:
    """The same when that step has failed."""
    fates = Fates(len(births))
    fates.failed(births.ids, error)
    fates.need_all()
    raise error


def unstored(name: str, outcome: Outcome) -> Unstorable:
    """The error about a new job that the database refused."""
    return Unstorable(f"{name} cannot be stored: {outcome}", id=name)
