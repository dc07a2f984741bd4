"""What a view is made of: words for states, fields that appear, moves that its readers may see.

A view shows one record in the words of one document. It is a table, read top to bottom: the first
row that fits the record gives the word. It may look at every lifecycle field of the job and at
nothing else, so what is shown can be rebuilt for any past moment.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from detent.lifecycle.job.record import Job
from detent.lifecycle.job.table import JobState
from detent.lifecycle.profile import Delivery, ProfileName

Value: TypeAlias = int | str
Move: TypeAlias = tuple[str | None, str]
EVERY_PROFILE = tuple(ProfileName)
EVERY_DELIVERY = tuple(Delivery)


class ViewName(StrEnum):
    """The documents whose words Detent speaks."""

    OJS = "ojs"
    REST = "rest"
    ENGINE = "engine"
    JOBNIK = "jobnik"


class When(NamedTuple):
    """A condition on the record, with the words that the documentation uses for it."""

    says: str
    holds: Callable[[Job], bool]


ALWAYS = When("always", lambda _: True)
IF_SET = When("whenever it has a value", lambda _: True)


class Word(msgspec.Struct, frozen=True):
    """One row: jobs in these states are called this, if the condition holds."""

    word: str
    states: tuple[JobState, ...]
    when: When = ALWAYS


class Field(msgspec.Struct, frozen=True):
    """One field of the document: where its value comes from and when it appears.

    A field without a value never appears. `divisor` turns microseconds into the document's unit.
    """

    name: str
    source: str
    when: When = IF_SET
    divisor: int = 1
    take: Callable[[Job], Value | None] | None = None

    def value(self, job: Job) -> Value | None:
        """What this job shows here, or `None` when the field is absent."""
        take, found = self.take, None
        if take is None:
            found = getattr(job, self.source)
            if found is None:
                # Most fields of most jobs: to look at the value costs less than the condition.
                return None
        if self.when is not IF_SET and not self.when.holds(job):
            return None
        if take is not None:
            found = take(job)
        return found if self.divisor == 1 else _shared(found, self.divisor)


class Extension(msgspec.Struct, frozen=True):
    """A move that readers may see although their document does not name it, and why."""

    source: str
    target: str
    meaning: str
    profiles: tuple[ProfileName, ...] = EVERY_PROFILE
    deliveries: tuple[Delivery, ...] = EVERY_DELIVERY

    def covers(self, source: str | None, target: str, job: Job) -> bool:
        """Whether it declares this move for jobs of this kind."""
        is_move = (self.source, self.target) == (source, target)
        return is_move and job.profile in self.profiles and job.delivery in self.deliveries


class Shown(msgspec.Struct, frozen=True):
    """A job as one document has it; instants are microseconds unless the field says otherwise."""

    state: str
    fields: dict[str, Value]


class View(msgspec.Struct, frozen=True):
    """How one document sees jobs."""

    name: ViewName
    title: str
    words: tuple[Word, ...]
    final: frozenset[str]
    fields: tuple[Field, ...]
    moves: frozenset[Move]
    extensions: tuple[Extension, ...]

    def show(self, job: Job) -> Shown:
        """The job in the words of this document."""
        fields: dict[str, Value] = {}
        for field in self.fields:
            if field.take is None and getattr(job, field.source) is None:
                # Most fields of most jobs.
                continue
            value = field.value(job)
            if value is not None:
                fields[field.name] = value
        return Shown(self.word(job), fields)

    def word(self, job: Job) -> str:
        """What this document calls the state of the job."""
        state = job.state
        for row in self.words:
            if state in row.states and (row.when is ALWAYS or row.when.holds(job)):
                return row.word
        raise LookupError(state)

    def allows(self, source: str | None, target: str, job: Job) -> bool:
        """Whether readers may see this: nothing moved, a move of the document, or an extension."""
        if source == target or (source, target) in self.moves:
            return True
        return any(extension.covers(source, target, job) for extension in self.extensions)


def _shared(value: Value | None, divisor: int) -> Value | None:
    return value // divisor if isinstance(value, int) else value
