"""New jobs: what a caller asks for becomes a unit, and a conflict becomes an answer.

A unique job that meets another is refused, dropped in favour of the other, or put in its place, as
the caller chose. A request with an idempotency key that was made before answers the job of then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import msgspec

from detent.engine.asks import Ask, OnConflict, born, is_keyed
from detent.engine.coalesce import Coalescer, pieces
from detent.engine.commands import TRIES_MAX
from detent.engine.declared import Declared
from detent.engine.entering import OUTRUN, Entry
from detent.engine.fates import Fates, need_heard, need_stored, unstored
from detent.engine.gathering import Gathering
from detent.engine.identity import Identity
from detent.engine.moulds import moulded
from detent.engine.secrets import Secrets
from detent.errors import StoreBusy, StoreError, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Refusal
from detent.stores.api import (
    RECORDS_MAX,
    Anywhere,
    Committed,
    Move,
    Near,
    New,
    Outcome,
    Own,
    Stale,
    Stepped,
    Store,
    Taken,
    Unit,
)
from detent.stores.births import Birth, Births, Mould

_ABREAST = 3
"""Of a call with very many jobs so many steps are under way at once."""


class Enqueued(msgspec.Struct, frozen=True):
    """The job that answers the request: a new one, or one that was there (`is_new` false)."""

    job: Job
    is_new: bool = True
    replaced: str | None = None


class Clash(msgspec.Struct, frozen=True):
    """Another job is in the way: `what` is `id`, `unique` or `idempotency`."""

    what: str
    by: Job


class Refused(msgspec.Struct, frozen=True):
    """Why none of several jobs came to be; `index` is the one that could not, if that is known."""

    why: Clash | Refusal
    index: int | None = None


Answer: TypeAlias = Enqueued | Clash | Refusal
Over: TypeAlias = Callable[[Callable[[], asyncio.Future[Stepped]]], Awaitable[Stepped]]
"""Begins something in the loop of the store, and awaits it in that of the caller."""


class Request:
    """A request without an answer; `rival` is the job that it is to replace."""

    __slots__ = ("answer", "ask", "command_id", "job_id", "rival")

    def __init__(self, ask: Ask, command_id: str, job_id: str) -> None:
        self.ask = ask
        self.command_id = command_id
        self.job_id = job_id
        self.rival: Job | None = None
        self.answer: Answer | None = None


class Enqueueing:
    """Makes jobs. Those with keys go apart: they may have to wait for somebody's transaction."""

    def __init__(
        self, store: Store, identity: Identity, secrets: Secrets, declared: Declared
    ) -> None:
        self._store = store
        self._identity = identity
        self.secrets = secrets
        self._declared = declared
        self._plain = Coalescer(store)
        self._keyed = Coalescer(store)
        self._press = Gathering[tuple[Mould, str], Birth](self._pressed, RECORDS_MAX)
        self._anywhere = store if isinstance(store, Anywhere) else None
        self._near = store if isinstance(store, Near) else None

    async def enqueue(self, asks: Sequence[Ask], by: By) -> list[Answer]:
        """The answer to each request, in order; new jobs are durable.

        An error of the store has in `enqueued` and `unknown` the ids of those that are, or may be.
        """
        asked = [self._opened(ask) for ask in await self._declared.applied(asks)]
        fates = Fates(len(asked))
        for _ in range(TRIES_MAX):
            left = [one for one in asked if one.answer is None]
            if not left:
                break
            for is_apart, coalescer in ((False, self._plain), (True, self._keyed)):
                some = [one for one in left if is_keyed(one.ask) is is_apart]
                await self._try(some, by, coalescer, fates)
            fates.need_all()
        return [answered(one) for one in asked]

    @property
    def is_anywhere(self) -> bool:
        """Whether plain jobs can be stored from any thread and loop, without a way to ours."""
        return self._anywhere is not None

    def moulded(self, calls: Sequence[tuple[Mould, str]]) -> Births:
        """New jobs of these moulds, with these payloads; in any thread. They are not stored yet."""
        return moulded(calls, self._identity)

    def press(self, mould: Mould, payload: str) -> Awaitable[Birth]:
        """One new job of a mould, durable; in our loop, with all who ask at the same time."""
        return self._press.ask((mould, payload))

    def press_for(
        self, mould: Mould, payload: str, hear: Callable[[Birth | Exception], None]
    ) -> None:
        """The same for somebody who is called when it is there, and has no task that waits."""
        self._press.tell((mould, payload), hear)

    async def store_new(self, births: Births) -> None:
        """Store new jobs of moulds, durably; in any loop, if the store is one for all."""
        if births.weight > RECORDS_MAX:
            await self._store_many(births)
            return
        store = self._plain.commit if self._anywhere is None else self._step
        try:
            outcomes = await store(births)
        except StoreError as error:
            need_heard(births, error)
        need_stored(births, outcomes)

    async def _store_many(self, births: Births) -> None:
        """In several steps; a server writes some of them beside each other.

        More of them would only wait for its disk.
        """
        left, fates = births.pieces(), Fates(len(births))
        await asyncio.gather(*(self._store_each(left, fates) for _ in range(_ABREAST)))
        fates.need_all()

    def is_short(self, births: Births) -> bool:
        """Whether so few are stored by `store_few`: all in one step, in the loop of the store."""
        return self._anywhere is None and births.weight <= RECORDS_MAX

    def is_near(self, births: Births) -> bool:
        """Whether who is alone with these may store them by itself."""
        return self._near is not None and len(births) == 1

    async def store_few(self, births: Births, over: Over) -> None:
        """Store so few; whoever does not cross over stores them from here."""
        cross = partial(over, partial(self._plain.ask, births))
        try:
            stepped = await (cross() if self._near is None else self._near.step_near(births, cross))
        except StoreError as error:
            need_heard(births, error)
        need_stored(births, stepped.outcomes)

    async def _store_each(self, left: Iterator[Births], fates: Fates) -> None:
        for some in left:
            if fates.is_bad:
                return
            try:
                fates.hear(some, await self._step(some))
            except Exception as error:
                fates.failed(some.ids, error)

    async def _step(self, births: Births) -> Sequence[Outcome]:
        return (await self._store.step(births, now=self._store.now())).outcomes

    def store_new_here(self, births: Births) -> None:
        """The same, waited for; only where the store is one for all threads."""
        if self._anywhere is None:
            raise TypeError(f"{self._store!r} has a loop of its own")
        fates = Fates(len(births))
        for some in births.pieces():
            try:
                fates.hear(some, self._anywhere.step_here(some, now=self._store.now()).outcomes)
            except Exception as error:
                fates.failed(some.ids, error)
            if fates.is_bad:
                break
        fates.need_all()

    async def enter(self, ask: Ask, by: By, entry: Entry) -> Answer:
        """One new job, for a queue that holds only so many."""
        [asked] = [self._opened(one) for one in await self._declared.applied([ask])]
        for _ in range(TRIES_MAX):
            made = self._made(asked, by)
            if not isinstance(made, Unit):
                return made
            [outcome] = await self._keyed.commit([entry.through(made)])
            if entry.is_outrun(outcome):
                return OUTRUN
            hear(asked, made.new[0].job, outcome)
            if asked.answer is not None:
                break
        return answered(asked)

    async def enqueue_together(
        self, asks: Sequence[Ask], by: By, entry: Entry | None = None
    ) -> list[Enqueued] | Refused:
        """All of these jobs or none. One that is in the way of any is in the way of all."""
        asks = await self._declared.applied(asks)
        made = self._made_together(asks, by)
        if isinstance(made, Refused):
            return made
        unit = made if entry is None else entry.through(made)
        is_apart = entry is not None or any(is_keyed(ask) for ask in asks)
        [outcome] = await (self._keyed if is_apart else self._plain).commit([unit])
        if isinstance(outcome, Committed | Own):
            return [Enqueued(new.job) for new in unit.new]
        if isinstance(outcome, Taken):
            return Refused(Clash(outcome.what, outcome.by))
        if entry is not None and entry.is_outrun(outcome):
            return Refused(OUTRUN)
        raise Unstorable(f"{len(asks)} jobs cannot be stored together: {outcome}")

    def _made_together(self, asks: Sequence[Ask], by: By) -> Unit | Refused:
        asked = [self._opened(ask) for ask in asks]
        command_id, made = self._identity.id(), list[New]()
        for index, one in enumerate(asked):
            one.command_id = command_id
            unit = self._made(one, by)
            if not isinstance(unit, Unit):
                return Refused(unit, index)
            twin = next((new.job for new in made if new.job.id == one.job_id), None)
            if one.ask.id is not None and twin is not None:
                return Refused(Clash("id", twin), index)
            made += unit.new
        return Unit(command_id, new=tuple(made))

    async def close(self) -> None:
        """Finish what was asked for."""
        await self._press.close()
        await self._plain.close()
        await self._keyed.close()

    async def _pressed(self, calls: Sequence[tuple[Mould, str]]) -> list[Birth | Exception]:
        births = self.moulded(calls)
        outcomes: list[Outcome] = []
        for some in births.pieces():
            outcomes += await self._step(some)
        return [
            birth if isinstance(outcome, Committed | Own) else unstored(birth[1], outcome)
            for birth, outcome in zip(births.rows, outcomes, strict=True)
        ]

    def _opened(self, ask: Ask) -> Request:
        # An id that we have made names the command too: nobody else has given it.
        made = self._identity.id()
        job_id = ask.id or made
        return Request(self.secrets.sealed(ask, job_id), made, job_id)

    async def _try(
        self, asked: Sequence[Request], by: By, coalescer: Coalescer, fates: Fates
    ) -> None:
        made: dict[str, tuple[Request, Unit]] = {}
        for one in asked:
            unit = self._made(one, by)
            if isinstance(unit, Unit):
                made[unit.command_id] = one, unit
            else:
                one.answer = unit
        for units, _ in pieces([unit for _, unit in made.values()]):
            if fates.is_bad:
                return
            await _commit(units, made, coalescer, fates)

    def _made(self, one: Request, by: By) -> Unit | Clash | Refusal:
        now = self._store.now()
        ctx = j.Context(by, one.command_id, place=self._identity.place(), reason=one.ask.reason)
        new = born(one.ask, one.job_id, now, ctx)
        if isinstance(new, Refusal):
            return new
        replacing = _replacing(one, by, now)
        if isinstance(replacing, Clash):
            return replacing
        return Unit(one.command_id, moves=replacing, new=(new,))


async def _commit(
    units: Sequence[Unit],
    made: Mapping[str, tuple[Request, Unit]],
    coalescer: Coalescer,
    fates: Fates,
) -> None:
    """One step, and what it means for those who asked."""
    try:
        outcomes = await coalescer.commit(units)
    except Exception as error:
        fates.failed((unit.new[0].job.id for unit in units), error)
        return
    for unit, outcome in zip(units, outcomes, strict=True):
        one, _ = made[unit.command_id]
        hear(one, unit.new[0].job, outcome)
        if isinstance(outcome, Committed | Own):
            fates.stored([unit.new[0].job.id])


def _replacing(one: Request, by: By, now: int) -> tuple[Move, ...] | Clash:
    """The end of the job that this one takes the place of; one that runs is left alone."""
    if one.rival is None:
        return ()
    ctx = j.Context(by, one.command_id, reason=f"replaced by {one.job_id}")
    answer = j.decide(one.rival, j.Cancel(Cause.REPLACED), now, ctx)
    if not isinstance(answer, j.Accepted) or answer.job.ended_at is None:
        return Clash("unique", one.rival)
    return (Move(one.rival.version, answer.job, answer.events),)


def hear(one: Request, job: Job, outcome: Outcome) -> None:
    """Give the request for this job its answer, or none if it must be tried again."""
    replaced = None if one.rival is None else one.rival.id
    match outcome:
        case Committed() | Own():
            one.answer = Enqueued(job, replaced=replaced)
        case Taken(what="idempotency", by=rival, differs=False):
            one.answer = Enqueued(rival, is_new=False)
        case Taken(what="unique", by=rival) if one.ask.unique is not None:
            _clash(one, one.ask.unique.on_conflict, rival)
        case Taken(what=what, by=rival):
            one.answer = Clash(what, rival)
        case Stale():
            # The job that was to be replaced has moved on: who is in the way is asked anew.
            one.rival = None
        case _:
            raise Unstorable(f"{one.job_id} cannot be stored: {outcome}", id=one.job_id)


def _clash(one: Request, choice: OnConflict, job: Job) -> None:
    if choice is OnConflict.REPLACE and one.rival is None:
        one.rival = job
    elif choice is OnConflict.IGNORE:
        one.answer = Enqueued(job, is_new=False)
    else:
        one.answer = Clash("unique", job)


def answered(one: Request) -> Answer:
    """The answer, which it must have by now."""
    if one.answer is None:
        raise StoreBusy(f"{one.job_id} was in somebody's way {TRIES_MAX} times", id=one.job_id)
    return one.answer
