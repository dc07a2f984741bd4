"""What an executor is: it runs handlers somewhere, and stops them there as well as it can.

The worker decides *that* a run is to stop, rung by rung: `ask`, `interrupt`, `kill`. An executor
only knows *how*, and says what became of it. `run` answers exactly once, whatever happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any, Protocol

import msgspec

from detent.engine.secrets import Opened
from detent.runtime.context import Context
from detent.runtime.ending import Raised, Told, Written
from detent.runtime.executors.means import Kind, is_alone
from detent.runtime.middleware import Arounds
from detent.runtime.signature import Signature
from detent.stores.api import Stored


class Rung(StrEnum):
    """How far the ladder had to be climbed."""

    INTERRUPTED = "interrupted"
    KILLED = "killed"
    ABANDONED = "abandoned"


class Returned(msgspec.Struct, frozen=True, gc=False):
    """The handler returned that."""

    value: Any


class Stopped(msgspec.Struct, frozen=True):
    """The handler ended, or was given up, because we stopped it.

    Interrupted: it let the interruption through. Killed: it is gone, and whatever it had started
    too. Abandoned: it goes on somewhere, and nobody listens to it any more.
    """

    rung: Rung


class Died(msgspec.Struct, frozen=True):
    """The process of the run ended without a word, and not by us: a loss, charged to this job.

    `cause` is `signal`, `exit`, `memory` or `garbled`; `tail` is the end of what it wrote.
    """

    cause: str
    signal: int | None = None
    code: int | None = None
    tail: str = ""

    @property
    def reason(self) -> str:
        """How the process died, in words for people."""
        what = f"signal {self.signal}" if self.signal is not None else f"exit code {self.code}"
        return f"its process died ({self.cause}, {what})"


Ended = Returned | Written | Raised | Told | Stopped | Died
"""How a run ended. `Written` and `Told` are a result and an error from another process."""


def settle(end: asyncio.Future[Ended], ended: Ended) -> None:
    """Let that be the end, unless there is one already."""
    if not end.done():
        end.set_result(ended)


def _nothing() -> None:
    """Nobody wants to know."""


class Run:
    """One attempt at one job, as it is handed to an executor.

    The caller has opened the payload and set the mask of `ctx.heard` already. The context outlives
    the run: what it has heard is the caller's to carry to the store.
    """

    __slots__ = ("around", "begun", "ctx", "opened", "signature", "stored")

    def __init__(
        self,
        stored: Stored,
        ctx: Context,
        signature: Signature,
        opened: Opened,
        around: Arounds[Context] | None = None,
    ) -> None:
        self.stored = stored
        self.ctx = ctx
        self.signature = signature
        self.opened = opened
        self.around = Arounds() if around is None else around
        self.begun: Callable[[], None] = _nothing
        """Called when there is a place for the handler, just before that is called itself."""

    def __repr__(self) -> str:
        return f"<Run {self.ctx.job_id} attempt {self.ctx.attempt}>"

    @property
    def is_alone(self) -> bool:
        """Whether it gets a process that runs nothing else."""
        return is_alone(self.stored)

    def call(self) -> Callable[[], Any]:
        """The function with its arguments; `BadArguments` if they do not fit."""
        args, kwargs = self.signature.call(self.opened.payload)
        if self.signature.wants_context:
            args = (self.ctx, *args)
        return partial(self.signature.function, *args, **kwargs)


class Executor(Protocol):
    """Runs handlers. All of it is called in one loop, that of the worker."""

    @property
    def kind(self) -> Kind:
        """Where they run."""
        ...

    async def run(self, run: Run) -> Ended:
        """Run it and say how it ended; whoever calls this off gives the run up at once."""
        ...

    def ask(self, run: Run) -> None:
        """The run should stop: `ctx.cancelled` is true from here on, wherever it runs."""
        ...

    def interrupt(self, run: Run) -> bool:
        """Raise something in it; whether there was a way to."""
        ...

    async def kill(self, run: Run) -> Rung:
        """End it, or give it up; `run` has answered soon after. A success that came first wins."""
        ...

    async def close(self) -> None:
        """Let go of everything; runs that are under way are killed or given up."""
        ...
