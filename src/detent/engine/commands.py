"""Commands become commits: load, let the lifecycle decide, commit, and decide again if outrun.

A record that has moved on since it was read is decided about again as it is now; the caller hears a
refusal only if the new decision is one. This is the only writer of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.coalesce import Coalescer
from detent.engine.ends import completions
from detent.engine.followers import Followers
from detent.engine.gathering import Gathering
from detent.engine.identity import Identity
from detent.engine.lasting import lasting, wake_of
from detent.engine.piecemeal import PIECE
from detent.engine.secrets import Secrets
from detent.errors import StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle import retry
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.job.stamping import Endings
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import (
    RECORDS_MAX,
    Committed,
    Failure,
    Key,
    LeaseAlive,
    Line,
    Move,
    Outcome,
    Own,
    Stale,
    Store,
    Stored,
    Unit,
)
from detent.stores.completions import Completions

TRIES_MAX = 100
"""How often a decision is made anew before the record is called too busy."""


class Beside(msgspec.Struct, frozen=True, gc=False):
    """What is stored together with a move and is no part of the lifecycle."""

    result: str | None = None
    failure: Failure | None = None
    lines: tuple[Line, ...] = ()
    checkpoint: str | None = None
    meta: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing but a result."""
        return (
            self.failure is None
            and not self.lines
            and self.checkpoint is None
            and self.meta is None
        )


class Change(msgspec.Struct, frozen=True, gc=False):
    """One command to one job. `known` is the job as the caller saw it last: it saves a question.

    Without a command it is whatever time alone does to the job by now, which only the system says.

    `delay_us` is how long the handler itself wants to wait, should the policy grant another try.
    With `claim` the command is the late report of a worker whose lease has ended: the job, which
    nobody may have taken since, is claimed under that lease and then reported on.

    `new` are jobs that come into being if the command is accepted, in the same commit; they have no
    keys, because a key that is taken would be in the way of the command itself. `lease` is the row
    that a loss is declared on; the store looks at it again.
    """

    key: Key
    command: j.Command | None
    by: By
    reason: str | None = None
    beside: Beside = Beside()
    error: ErrorInfo | None = None
    known: Stored | None = None
    delay_us: int | None = None
    new: tuple[Ask, ...] = ()
    lease: j.Lease | None = None
    claim: j.Claim | None = None


class _Open:
    """A change that has no answer yet."""

    __slots__ = ("answer", "change", "command_id", "error", "is_fresh", "new_ids", "stored")

    def __init__(self, change: Change, command_id: str, name: Callable[[], str]) -> None:
        self.change = change
        self.command_id = command_id
        self.new_ids = [name() for _ in change.new] if change.new else []
        self.stored = change.known
        self.is_fresh = change.known is None
        self.answer: j.Answer | None = None
        self.error: Exception | None = None


class Commands:
    """Carries out commands to jobs, many at once."""

    def __init__(
        self,
        store: Store,
        coalescer: Coalescer,
        identity: Identity,
        jitter: Callable[[], float],
        secrets: Secrets,
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._jitter = jitter
        self._followers = Followers(identity, secrets)
        self._ends: Gathering[Change, j.Answer] = Gathering(self._ended, RECORDS_MAX)

    async def carry_out(self, changes: Sequence[Change]) -> list[j.Answer]:
        """The answer to each; what is accepted is durable. Of very many some are done at a time."""
        asked: list[_Open] = []
        for first in range(0, len(changes), PIECE):
            piece = changes[first : first + PIECE]
            asked += await self._carried_out(piece, self._identity.ids(len(piece)))
        return [_answered(one) for one in asked]

    async def refused(self, changes: Sequence[Change]) -> dict[int, Refusal]:
        """The same for whoever only wants to know which of them are refused."""
        asked: list[tuple[int, list[_Open]]] = []
        for first in range(0, len(changes), PIECE):
            piece = changes[first : first + PIECE]
            names = self._identity.ids(len(piece))
            ends = completions(piece, names, self._store.now())
            if ends is None:
                asked.append((first, await self._carried_out(piece, names)))
            else:
                asked.append((first, await self._ended_alike(piece, ends)))
        # Not before all had their turn: what holds up one of them is no matter of the others.
        refused: dict[int, Refusal] = {}
        for first, some in asked:
            refused |= refusals(map(_answered, some), first)
        return refused

    async def complete(self, change: Change) -> j.Answer:
        """The answer to a report of success, decided together with all that come with it."""
        return await self._ends.ask(change)

    async def close(self) -> None:
        """Finish what was asked for."""
        await self._ends.close()

    async def _ended(self, changes: Sequence[Change]) -> list[j.Answer | Exception]:
        """The answer to each, or its own error: they come from callers that share nothing."""
        names = self._identity.ids(len(changes))
        return [_answer_of(one) for one in await self._carried_out(changes, names)]

    async def _ended_alike(self, changes: Sequence[Change], ends: Completions) -> list[_Open]:
        """All of them if one is in trouble or has moved on; nobody if all are durable."""
        names = [row[1] for row in ends.rows]
        try:
            outcomes = await self._coalescer.commit(ends)
        except StoreBusy as error:
            asked = self._opened(changes, names)
            _set_aside(asked, error)
            await self._settle(asked)
            return asked
        if all(isinstance(one, Committed | Own) for one in outcomes):
            return []
        asked = self._opened(changes, names)
        for one, row, outcome in zip(asked, ends.rows, outcomes, strict=True):
            self._hear(one, ends.answer(row), outcome)
        await self._settle(asked)
        return asked

    async def _carried_out(self, changes: Sequence[Change], names: Sequence[str]) -> list[_Open]:
        asked = self._opened(changes, names)
        if unknown := [one for one in asked if one.stored is None]:
            await self._load(unknown)
        await self._settle(asked)
        return asked

    def _opened(self, changes: Sequence[Change], names: Sequence[str]) -> list[_Open]:
        given = zip(changes, names, strict=True)
        return [_Open(change, name, self._identity.id) for change, name in given]

    async def _settle(self, asked: Sequence[_Open]) -> None:
        """Try until each has an answer."""
        for _ in range(TRIES_MAX):
            left = [one for one in asked if one.answer is None and one.error is None]
            if not left:
                break
            await self._try(left)

    async def _load(self, asked: Sequence[_Open]) -> None:
        found = await self._store.get([one.change.key for one in asked]) if asked else []
        for one, stored in zip(asked, found, strict=True):
            one.stored = stored
            one.is_fresh = True

    async def _try(self, asked: Sequence[_Open]) -> None:
        """Decide all of them, and commit what was accepted."""
        now = self._store.now()
        endings = Endings(now)
        decided = [(one, self._decide(one, now, endings)) for one in asked]
        moving = [(one, answer) for one, answer in decided if isinstance(answer, j.Accepted)]
        if len(moving) < len(decided):
            await self._answer([(one, a) for one, a in decided if not isinstance(a, j.Accepted)])
        units = [self._unit(one, answer, now) for one, answer in moving]
        try:
            outcomes = await self._coalescer.commit(units) if units else []
        except StoreBusy as error:
            _set_aside([one for one, _ in moving], error)
            return
        for (one, answer), outcome in zip(moving, outcomes, strict=True):
            self._hear(one, answer, outcome)

    async def _answer(self, denied: Sequence[tuple[_Open, j.Answer]]) -> None:
        """Only what is, denies: the job as the caller knew it is loaded, and decided about anew."""
        for one, answer in denied:
            one.answer = answer if one.is_fresh else None
        await self._load([one for one, _ in denied if not one.is_fresh])

    def _decide(self, one: _Open, now: int, endings: Endings) -> j.Answer:
        change, stored = one.change, one.stored
        is_late = change.claim is not None
        if isinstance(change.command, j.Complete) and stored is not None and not is_late:
            ctx = j.Context(change.by, one.command_id, reason=change.reason)
            return endings.decide(stored.job, change.command, ctx)
        ctx = j.Context(
            change.by,
            one.command_id,
            place=self._identity.place(),
            lease=change.lease,
            verdict=self._verdict(change, stored, now),
            reason=change.reason,
        )
        job = None if stored is None else stored.job
        if change.claim is not None and isinstance(change.command, j.Report):
            return j.decide_late(job, change.claim, change.command, now, ctx)
        if change.command is not None:
            return j.decide(job, change.command, now, ctx)
        if job is None:
            return j.JOB.refusal("unknown_job", None, "tick", change.by.kind, detail="no such job")
        return j.tick(job, now, ctx)

    def _verdict(self, change: Change, stored: Stored | None, now: int) -> retry.Verdict | None:
        """What the job's policy says, should this turn out to be a failure; an end is none."""
        if stored is None or isinstance(change.command, j.Complete):
            return None
        error = change.error or ErrorInfo(getattr(change.command, "code", None) or "lost")
        failures, policy = stored.job.failures + 1, stored.body.retry
        verdict = retry.judge(policy, error, failures, self._jitter())
        if change.delay_us is not None and verdict.retry:
            verdict = replace(verdict, delay_us=change.delay_us)
        return retry.within(verdict, retry.total_end(policy, stored.job.created_at), now)

    def _unit(self, one: _Open, answer: j.Accepted, now: int) -> Unit:
        job, command, beside = answer.job, one.change.command, one.change.beside
        result, until = beside.result, None
        if result is not None and one.stored is not None:
            result, until = lasting(job, one.stored.body, result, now)
        is_late = one.change.claim is not None
        if isinstance(command, j.Complete) and not (one.new_ids or is_late) and beside.is_plain:
            # In the order of the fields, for it is what nearly every job comes to.
            head = (job.version - 1, job, answer.events, None, command.lease)
            done = Move(*head, result=result, result_until=until)
            return Unit(one.command_id, (done,))
        named = command.lease if isinstance(command, j.Report) else _held_under(one)
        failure = beside.failure
        if is_late:
            # The lease began in this very commit, and so did the attempt that has failed.
            named = None
            failure = None if failure is None else replace(failure, attempt=job.attempt)
        move = Move(
            job.version - len(answer.events),
            job,
            answer.events,
            wake_at=j.next_wake(job, now)
            if one.stored is None
            else wake_of(job, one.stored.body, now),
            lease=named,
            lost=isinstance(command, j.Lose) and one.change.by.kind is not Actor.WORKER,
            taken_by=command.holder if isinstance(command, j.Dispatch) else None,
            result=result,
            failure=failure,
            lines=beside.lines,
            checkpoint=beside.checkpoint,
            meta=beside.meta,
            result_until=until,
        )
        if not one.new_ids:
            return Unit(one.command_id, moves=(move,))
        asked = zip(one.change.new, one.new_ids, strict=True)
        new = self._followers.of(asked, job.id, one.command_id, now)
        return Unit(one.command_id, moves=(move,), new=new)

    def _hear(self, one: _Open, answer: j.Accepted, outcome: Outcome) -> None:
        match outcome:
            case Committed() | Own():
                one.answer = answer
            case Stale(now=job):
                one.stored = _moved_on(one.stored, job)
                one.is_fresh = True
            case LeaseAlive() if one.stored is not None:
                # The holder that was to be declared lost is alive: there is nothing to do.
                one.answer = j.Unchanged(one.stored.job)
            case _:
                tenant, name = one.change.key
                why = f"What was decided about {name} cannot be stored: {outcome}"
                one.error = Unstorable(why, tenant=tenant, id=name)


def refusals(answers: Iterable[j.Answer], first: int = 0) -> dict[int, Refusal]:
    """Those among the answers, by their numbers."""
    numbered = enumerate(answers, first)
    return {number: one for number, one in numbered if isinstance(one, Refusal)}


def _set_aside(asked: Sequence[_Open], error: StoreBusy) -> None:
    """Those that somebody's open transaction holds up; the others find their own commit."""
    if (blocked := error.fields.get("blocked")) is None:
        raise error
    for one in asked:
        if one.command_id in blocked:
            one.error = error


def _held_under(one: _Open) -> str | None:
    """The lease that time ends, if it is time that ends it."""
    if one.change.command is not None or one.stored is None:
        return None
    return one.stored.job.lease


def _moved_on(stored: Stored | None, job: Job | None) -> Stored | None:
    """The same job as it is now; `None` when it is gone."""
    if stored is None or job is None:
        return None
    return replace(stored, job=job)


def _answer_of(one: _Open) -> j.Answer | Exception:
    if one.answer is not None:
        return one.answer
    tenant, name = one.change.key
    why = f"{name} was changed by others {TRIES_MAX} times while it was being changed"
    return one.error or StoreBusy(why, tenant=tenant, id=name)


def _answered(one: _Open) -> j.Answer:
    answer = _answer_of(one)
    if isinstance(answer, Exception):
        raise answer
    return answer
