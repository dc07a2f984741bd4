"""Words for asking a store for things: units that were decided by the lifecycle, never by a test.

A `Maker` hands out ids, places and command ids that never repeat, and turns decisions into units.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import seal
from detent.lifecycle import workflow as w
from detent.lifecycle.event import By, Made
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Actor
from detent.lifecycle.merkle import skip_of
from detent.lifecycle.retry import Verdict
from detent.lifecycle.seal import Block
from detent.stores.api import Body, Due, FlowMove, Move, New, Unit, Want

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
USER = By(Actor.USER, "ada")
SYSTEM = By(Actor.SYSTEM, "upkeep")
WORKER = By(Actor.WORKER, "w1")
AGAIN = Verdict(retry=True, delay_us=5 * SECOND, cause=None)
NEVER = Verdict(retry=False, delay_us=0, cause="not_retryable")
ALIVE = j.Lease(START + 10_000 * SECOND)
LOST = j.Lease(0, lost=True)
BODY = Body("mail.send", '["a"]')


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def move(self, us: int) -> None:
        """Let time pass, or go back."""
        self.now += us


def accepted(answer: j.Answer) -> j.Accepted:
    """The decision, which the test expects to be a yes."""
    assert isinstance(answer, j.Accepted), answer
    return answer


def forged(new: New, **facts: Any) -> New:
    """The same birth with facts that no decision would let through, and the record they lead to.

    Only so can a store be shown what it must keep or refuse by itself.
    """
    first, *rest = new.events
    assert first.made is not None
    made = {name: facts.pop(name) for name in Made.__struct_fields__ if name in facts}
    events = (replace(first, made=replace(first.made, **made), **facts), *rest)
    job = j.fold(events)
    assert job is not None
    return replace(new, job=job, events=events)


def resealed(leaves: Sequence[bytes], blocks: Sequence[Block]) -> list[Block]:
    """The chain over these leaves, cut as the given one is."""
    chain: list[Block] = []
    for block in blocks:
        start = block.first_pos - 1
        skipped = skip_of(len(chain) + 1)
        skip = chain[skipped - 1] if skipped else None
        last = chain[-1] if chain else None
        chain.append(seal.seal(leaves[start : start + block.count], last, skip))
    return chain


class Maker:
    """Makes units out of decisions, at the time of its clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._ids, self._places, self._commands = count(1), count(1), count(1)

    @property
    def now(self) -> int:
        """The present moment."""
        return self.clock.now

    def command_id(self) -> str:
        """One that nobody has used."""
        return f"c-{next(self._commands):06}"

    def ctx(self, by: By, **more: Any) -> j.Context:
        """What surrounds a decision; `more` overrides."""
        more.setdefault("place", self.now + next(self._places))
        more.setdefault("verdict", AGAIN)
        return j.Context(by, more.pop("command_id", None) or self.command_id(), **more)

    def new(self, *, body: Body = BODY, by: By = USER, **more: Any) -> New:
        """A job that comes into being; `unique` and `idempotency` go to the store."""
        apart = {name: more.pop(name, None) for name in ("unique", "idempotency")}
        ctx = self.ctx(by, **{name: more.pop(name, None) for name in ("command_id", "reason")})
        more.setdefault("id", f"job-{next(self._ids):06}")
        more.setdefault("profile", "python")
        made = accepted(j.decide(None, j.Enqueue(**more), self.now, ctx))
        wake_at = j.next_wake(made.job, self.now)
        return New(made.job, made.events, body, wake_at, **apart)

    def inserting(self, *new: New, moves: Sequence[Move] = ()) -> Unit:
        """The unit of these new jobs; they were made under one command."""
        return Unit(new[0].events[0].command_id, moves=tuple(moves), new=new)

    def pushed(self, **more: Any) -> Unit:
        """The unit of one new job."""
        return self.inserting(self.new(**more))

    def move(self, job: j.Job, command: j.Command, by: By, **more: Any) -> Move:
        """What the command does to the job, as a move; `store` holds what only a store reads."""
        told: dict[str, Any] = more.pop("store", {})
        answer = accepted(j.decide(job, command, self.now, self.ctx(by, **more)))
        return self.moved(job, answer, **told)

    def moved(self, job: j.Job, answer: j.Accepted, **told: Any) -> Move:
        """The move from the job to what was decided about it."""
        told.setdefault("wake_at", j.next_wake(answer.job, self.now))
        return Move(job.version, answer.job, answer.events, **told)

    def moving(self, *moves: Move) -> Unit:
        """The unit of these moves; they were decided under one command."""
        return Unit(moves[0].events[0].command_id, moves=moves)

    def doing(self, job: j.Job, command: j.Command, by: By, **more: Any) -> Unit:
        """The unit of one command."""
        return self.moving(self.move(job, command, by, **more))

    def ticking(self, due: Due) -> Unit:
        """The answer to a due item: what time does to it, or when to look again."""
        job, ctx = due.stored.job, self.ctx(SYSTEM, lease=due.lease, gate=due.gate)
        if due.swept:
            command = j.Cancel(Cause.WORKFLOW, force=True)
            return self.moving(self.moved(job, accepted(j.decide(job, command, self.now, ctx))))
        answer = j.tick(job, self.now, ctx)
        if not isinstance(answer, j.Accepted):
            wake_at = j.next_wake(job, self.now, gate=due.gate, lease=due.lease)
            return Unit(ctx.command_id, moves=(Move(job.version, job, wake_at=wake_at),))
        is_loss = any(event.name == "lose" or event.cause == "lose" for event in answer.events)
        return self.moving(self.moved(job, answer, lease=job.lease, lost=is_loss))

    def flowing(
        self, flow: w.Flow | None, command: w.Command, *new: New, by: By = USER, **more: Any
    ) -> Unit:
        """The unit of a command to a workflow, with the jobs that come in the same commit."""
        command_id = more.pop("command_id", None) or self.command_id()
        ctx = w.Context(by, command_id, more.pop("reason", None))
        answer = w.decide(flow, command, self.now, ctx)
        assert isinstance(answer, w.Accepted), answer
        return Unit(command_id, new=new, flow=FlowMove(flow, answer), **more)

    def want(self, number: int = 1, **more: Any) -> Want:
        """A wish for that many jobs of the default queue, by worker w1."""
        command_id = more.pop("command_id", None) or self.command_id()
        more.setdefault("holder", "w1")
        more.setdefault("by", By(Actor.WORKER, more["holder"]))
        more.setdefault("queues", ("default",))
        more.setdefault("leases", tuple(f"L-{command_id}-{one}" for one in range(number)))
        return Want(command_id=command_id, **more)
