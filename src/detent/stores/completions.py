"""Jobs that complete alike, at one moment and by one holder: all but their names is told once."""

from __future__ import annotations

from typing import Self, TypeAlias

from detent.lifecycle.job import Accepted, Job
from detent.lifecycle.job.stamping import Endings
from detent.stores.shapes import Move, Unit
from detent.stores.uniform import Uniform

Completion: TypeAlias = tuple[Job, str, str | None, str | None, int | None]
"""The job as it was claimed, the command, the digest of the result, what is kept, until when."""


class Completions(Uniform[Completion]):
    """Units that are one completion each. `endings` knows every job, in the state that it has."""

    __slots__ = ("_endings",)

    def __init__(self, rows: list[Completion], endings: Endings) -> None:
        super().__init__(rows)
        self._endings = endings

    def like(self, rows: list[Completion]) -> Self:
        """Of the same endings."""
        return type(self)(rows, self._endings)

    def unit(self, row: Completion) -> Unit:
        """What is changed by it."""
        job, command_id, _, result, until = row
        done = self.answer(row)
        head = (job.version, done.job, done.events, None, job.lease)
        return Unit(command_id, (Move(*head, result=result, result_until=until),))

    def answer(self, row: Completion) -> Accepted:
        """What the lifecycle would have decided."""
        job, command_id, digest, _, _ = row
        return self._endings.copied(job, command_id, digest)

    @property
    def lengths(self) -> list[int]:
        """Of their results."""
        return [len(row[3] or "") for row in self.rows]
