"""One live instance: its record, its body, and the only way to move either.

A move is decided by the lifecycle, written down, and only then seen by anybody. That is one
synchronous step, so no two moves of an instance can mix.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from msgspec.structs import replace

from detent.complaining import Complaint
from detent.errors import BadJournal, NotSuspendable
from detent.lifecycle import worker as w
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.lifecycle.worker import Accepted, Answer, Birth, Ending, Exit, Instance, WorkerState
from detent.runtime.supervisor.body import Body, Born
from detent.runtime.supervisor.entries import Note
from detent.runtime.supervisor.tree import Tree, settle

_log = logging.getLogger("detent.supervisor")
_RETRY_S = 1.0


class After(StrEnum):
    """What becomes of the slot when this instance has ended.

    `group`: whoever stopped it starts it again, together with its siblings.
    """

    POLICY = "policy"
    DOWN = "down"
    AGAIN = "again"
    GROUP = "group"


@runtime_checkable
class Abandonable(Protocol):
    """A body that nobody can force, such as a thread: it is left behind instead."""

    def abandon(self) -> Exit:
        """Stop waiting for it; how that counts as an end."""
        ...


class Live:
    """An instance from its birth to its end. `done` may be read by anybody, as often as wanted."""

    def __init__(self, tree: Tree, birth: Birth, body: Body, kind: str) -> None:
        answer = w.create(birth, tree.order())
        if isinstance(answer, Refusal):
            raise answer.error()
        self.tree = tree
        self.body = body
        self.kind = kind
        self.record = tree.enter(None, answer)
        self.done: asyncio.Future[Instance] = asyncio.get_running_loop().create_future()
        self.exists = asyncio.Event()
        """There is something that can be asked and forced."""
        self.after = After.POLICY
        self.is_urged = False
        """Somebody wants it now: neither schedule, backoff nor breaker holds it."""
        self.is_failing = False
        """It is stopped for its health or its memory, which counts as a failure of the slot."""
        self.was_forced = False
        self.timed_out = False
        """It was not ready in time."""
        self.spawning: asyncio.Task[Born | None] | None = None
        self.proving: asyncio.Task[None] | None = None
        """Waits for it to say that it is ready."""
        self.ladder: asyncio.Task[None] | None = None
        self.hastened = asyncio.Event()
        self.deadline = 0.0
        """When its grace ends, on the monotonic clock."""
        self.quieting: asyncio.Task[None] | None = None
        """Waits for it to go quiet."""
        self.roused = asyncio.Event()
        """It was told to go on while somebody waits for it to go quiet."""
        self.is_hushed = False
        """It was told at its birth to take nothing in."""
        self.ready_at: float | None = None
        self.needs_ready_signal = True
        tree.tell()

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def state(self) -> WorkerState:
        return self.record.state

    @property
    def is_quieting(self) -> bool:
        """Whether somebody waits for it to go quiet."""
        return self.quieting is not None and not self.quieting.done()

    @property
    def uptime_s(self) -> float:
        """How long it has been ready; nothing, if it never was."""
        return 0.0 if self.ready_at is None else self.tree.clock.monotonic() - self.ready_at

    def move(
        self, verb: Callable[..., Answer], *told: Any, by: By | None = None, **more: Any
    ) -> bool:
        """Whether that changed anything; raises `IllegalTransition` if the lifecycle says no."""
        return self.enter(verb(self.record, *told, self.tree.order(by), **more))

    def enter(self, answer: Answer) -> bool:
        """Write down what was decided, then let it be true, then tell."""
        if isinstance(answer, Refusal):
            self.tree.refuse(self.record, answer)
            raise _refused(self.record, answer)
        if not isinstance(answer, Accepted):
            return False
        self.record = self.tree.enter(self.record, answer)
        if self.state is WorkerState.RUNNING and self.ready_at is None:
            self.ready_at = self.tree.clock.monotonic()
        self.tree.tell()
        if self.state.is_terminal:
            settle(self.done, self.record)
        return True

    async def insist(
        self,
        verb: Callable[..., Answer],
        *told: Any,
        so_long_as: Callable[[], bool] = lambda: True,
        **more: Any,
    ) -> bool:
        """A move that follows from what has happened: tried until the journal takes it.

        A journal that cannot be written does not undo what it should tell; until it can, nobody
        hears of it.
        """
        what, clock = f"what happened to {self.id} is not written down", self.tree.clock
        complaint = Complaint(_log, what, clock.monotonic)
        while so_long_as():
            try:
                return self.move(verb, *told, **more)
            except BadJournal as error:
                complaint.say(str(error))
                await clock.sleep(_RETRY_S)
        return False

    async def finish(self, seen: Exit) -> bool:
        """The one way to an end, whoever saw it; a second report is counted and ignored."""
        if self.timed_out:
            seen = Exit(Ending.INIT_TIMED_OUT, seen.exit_code)
        elif self.was_forced:
            seen = replace(seen, is_forced=True)
        moved = await self.insist(w.end, seen, needs_ready_signal=self.needs_ready_signal)
        if not moved:
            self.tree.ended_twice += 1
        return moved

    def note(self, name: str, reason: str | None = None) -> None:
        """Write down something about it that is no move."""
        self.tree.note(Note(self.record.slot, name, self.id, reason))


def _refused(record: Instance, refusal: Refusal) -> Exception:
    if refusal.code == "not_suspendable":
        return NotSuspendable(
            f"The worker in slot {record.slot} cannot go quiet and come back. Stop it instead",
            slot=record.slot,
            instance=record.id,
        )
    error = refusal.error()
    error.fields |= {"instance": record.id, "slot": record.slot}
    return error
