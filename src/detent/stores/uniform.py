"""Many units of one kind, each kept as the few values that are its own.

A store reads them as units like any others, or takes the columns where it can write these at once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, Self, TypeVar, overload

from detent.stores.shapes import RECORD_CHARS, RECORDS_MAX, Unit

R = TypeVar("R")


class Uniform(Sequence[Unit], Generic[R]):
    """Units that are made when somebody looks at them."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[R]) -> None:
        self.rows = rows

    @abstractmethod
    def unit(self, row: R) -> Unit:
        """What one of them says in full."""

    @property
    @abstractmethod
    def lengths(self) -> list[int]:
        """How long the text is that each of them brings."""

    def like(self, rows: list[R]) -> Self:
        """Others that share with these what all share."""
        return type(self)(rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Unit: ...
    @overload
    def __getitem__(self, at: slice) -> Self: ...
    def __getitem__(self, at: int | slice) -> Unit | Self:
        return self.like(self.rows[at]) if isinstance(at, slice) else self.unit(self.rows[at])

    @property
    def weight(self) -> int:
        """How much of a step they take: long texts more than short ones."""
        return max(len(self.rows), sum(self.lengths) // RECORD_CHARS)

    def pieces(self) -> Iterator[Self]:
        """The same in pieces that fit into a step each."""
        if self.weight <= RECORDS_MAX:
            yield self
            return
        begun, room = 0, RECORDS_MAX * RECORD_CHARS
        for at, length in enumerate(self.lengths):
            if at - begun == RECORDS_MAX or (at > begun and room < length):
                yield self[begun:at]
                begun, room = at, RECORDS_MAX * RECORD_CHARS
            room -= length
        yield self[begun:]
