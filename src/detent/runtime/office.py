"""What a worker asks of whoever keeps its jobs: an engine here, or a server far away.

It claims, it reports, it looks after what it runs, and it says what its runs have said. Nothing
else of an engine is used below this seam, so whatever offers this can be worked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from detent.engine.asks import Ask
from detent.engine.commands import Change
from detent.engine.identity import Identity
from detent.engine.progress import Before, Result
from detent.engine.secrets import Opened, Owner
from detent.lifecycle import job as j
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.stores.api import Claimed, Key, LimitRow, Line, Note, Stored, Want


class Books(Protocol):
    """Where jobs are kept, as far as a worker sees it."""

    def now(self) -> int:
        """The time there, in microseconds."""
        ...

    async def get(self, keys: Sequence[Key]) -> Sequence[Stored | None]:
        """Jobs as they are: under which lease, and whether they were called off."""
        ...

    async def note(self, notes: Sequence[tuple[Key, str, Note]], *, now: int) -> Sequence[bool]:
        """How far runs are."""
        ...

    async def append_logs(self, lines: Sequence[tuple[Key, Line]]) -> Sequence[int]:
        """What runs said."""
        ...

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:
        """Until there may be something to claim."""
        ...


class Locks(Protocol):
    """Secret arguments."""

    def opened(self, payload: str, owner: Owner) -> Opened:
        """The arguments for a handler."""
        ...

    def sealed(self, ask: Ask, job_id: str) -> Ask:
        """A job that follows, as it will be stored."""
        ...


class Earlier(Protocol):
    """The steps before a job."""

    async def before(self, job: Job) -> Before:
        """Their names."""
        ...

    async def results_of(self, key: Key, step: str) -> Sequence[Result]:
        """What came out of one."""
        ...


class Office(Protocol):
    """Everything that a worker asks."""

    @property
    def store(self) -> Books:
        """Where the jobs are kept."""
        ...

    @property
    def secrets(self) -> Locks:
        """What opens secret arguments."""
        ...

    @property
    def workflows(self) -> Earlier:
        """What knows the steps."""
        ...

    @property
    def identity(self) -> Identity:
        """What names claims and leases."""
        ...

    async def claim(self, want: Want) -> Claimed:
        """Jobs to run; the same wish again gets the same jobs."""
        ...

    async def carry_out(self, changes: Sequence[Change]) -> list[j.Answer]:
        """Reports; an answer for each, in order."""
        ...

    async def refused(self, changes: Sequence[Change]) -> dict[int, Refusal]:
        """The same for whoever only wants to know which of them are refused."""
        ...

    async def set_limits(self, limits: Sequence[LimitRow]) -> None:
        """The limits of jobs that follow."""
        ...
