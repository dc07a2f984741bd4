"""`Detent`: the object that a program declares its jobs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast

from detent.app.asking import Call
from detent.app.connection import Connection
from detent.app.handle import Handle
from detent.app.job import Declare, Job
from detent.app.listening import Listener, Listening
from detent.app.options import CallOptions, JobOptions, need_known
from detent.engine import limits
from detent.engine.engine import Engine
from detent.engine.enqueueing import Answer, Clash, Enqueued
from detent.errors import BadOption, InsideLoop, JobExists
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor, Refusal
from detent.runtime.bridge import Bridge
from detent.runtime.context import Context
from detent.runtime.draining import Drain
from detent.runtime.encoding import Reader
from detent.runtime.middleware import Around, Arounds
from detent.runtime.signature import Signature
from detent.stores.api import Limit, Stored

__all__ = ["Detent"]

R = TypeVar("R")
A = TypeVar("A", bound=Around[Call[Any]])
B = TypeVar("B", bound=Around[Context])
F = TypeVar("F", bound=Callable[[Event], Any])


class Detent:
    """Jobs, and the store they are kept in.

    Without an address it is that of `DETENT_URL` or `DATABASE_URL`, else `detent.db` in the working
    directory. `actor` is who the history names as the one who enqueued and cancelled. Options are
    those of every job that has no other word. Nothing is opened before it is needed.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        actor: str = "python",
        clock: Callable[[], int] | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        need_known(options)
        self.by = By(Actor.USER, actor)
        self.jobs: dict[str, Job[..., Any, ..., Any]] = {}
        self.job = Declare(self, cast("JobOptions", options))
        self.listening = Listening()
        self.calls: Arounds[Call[Any]] = Arounds()
        """What is done around every enqueue."""
        self.runs: Arounds[Context] = Arounds()
        """What is done around every run."""
        self.connection = Connection(url, clock)

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self.connection.bridge

    @property
    def handlers(self) -> dict[str, Signature]:
        """The functions by the type of job that they run."""
        return {name: job.signature for name, job in self.jobs.items()}

    async def engine(self) -> Engine:
        """The engine; ask for it, and use it, in the loop of the bridge."""
        return await self.connection.engine()

    def add(self, job: Job[..., Any, ..., Any]) -> None:
        """Register a job type; two of one name would run each other's jobs."""
        if job.name in self.jobs:
            why = f"Two jobs are called {job.name!r}: give one of them another name="
            raise BadOption(why, option="name", value=job.name)
        self.jobs[job.name] = job

    def around_enqueue(self, function: A) -> A:
        """Do something around every enqueue: a generator that gets the call and yields once.

        It runs where the caller is. Before the yield it may change the options of the call, or
        raise to refuse it; after the yield the job is durable.
        """
        self.calls.add(function)
        return function

    def around_run(self, function: B) -> B:
        """Do something around every run: a generator that gets the context and yields once.

        It runs where the handler does: in its loop, or in its thread if both are plain functions.
        """
        self.runs.add(function)
        return function

    def on(
        self, *words: str, kind: str = "job", name: str = "", from_start: bool = False
    ) -> Callable[[F], F]:
        """Tell the function of events: those that lead to a named state, or that have a name.

        It is told in the order of the history, once at least; how far it is, is kept in the store
        under its name. A new one hears of what comes, or with `from_start` of all there is.
        """

        def register(function: F) -> F:
            called = name or function.__qualname__
            self.listening.add(Listener(called, function, words, kind, from_start))
            return function

        return register

    def handle(self, id: str, tenant: str = "") -> Handle[Any]:  # noqa: A002
        """The job of this id, whether it is there or not."""
        return Handle(self, id, tenant, is_new=False)

    def enqueue_calls(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Enqueue these, with whatever is around that, and wait for it."""
        if not self.calls:
            return self.bridge.run(self.start_many(calls))
        own = [call.copy() for call in calls]
        with self.calls.waited(own, self.bridge):
            return self.bridge.run(self.start_many(own))

    async def aenqueue_calls(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """The same, awaited."""
        if not self.calls:
            return await self.bridge.reach(self.start_many(calls))
        own = [call.copy() for call in calls]
        async with self.calls.awaited(own):
            return await self.bridge.reach(self.start_many(own))

    async def start_many(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Enqueue many; nothing is enqueued unless all of them could be."""
        limits.need_batch(len(calls))
        engine = await self.engine()
        now = engine.store.now()
        asks = [call.ask(now) for call in calls]
        for ask in asks:
            limits.need_job(ask)
        rows: dict[tuple[str, str], Limit] = {}
        for call in calls:
            rows |= call.limit()
        await self.connection.set_limits(rows)
        answers = await engine.enqueue(asks, self.by)
        return [self._handle_of(call, answer) for call, answer in zip(calls, answers, strict=True)]

    def _handle_of(self, call: Call[R], answer: Answer) -> Handle[R]:
        match answer:
            case Enqueued(job=job, is_new=is_new):
                return Handle(self, job.id, job.tenant, is_new=is_new)
            case Clash(what=what, by=job):
                why = f"job {job.id} is in the way ({what}), and it is {job.state}"
                told = {"id": job.id, "what": what, "state": job.state.value}
                raise JobExists(f"{call.signature.name}: {why}", **told)
            case Refusal():
                raise answer.error()

    def enqueue_many(self, calls: Iterable[Call[Any]]) -> list[Handle[Any]]:
        """A job per call, of any types, in few commits; a handle for each, in order."""
        return self.enqueue_calls(list(calls))

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> list[Handle[Any]]:
        """The same, awaited."""
        return await self.aenqueue_calls(list(calls))

    def drain(self) -> list[str]:
        """Run every job that is due, one after the other, here; the ids of those that were run."""
        return _in_a_loop(self.adrain(), "adrain")

    async def adrain(self) -> list[str]:
        """The same in the running loop."""
        engine = await self.bridge.reach(self.engine())
        return await Drain(engine, self.bridge, self.handlers, around=self.runs).run()

    def deliver(self) -> int:
        """Tell listeners of everything up to now; how many events were taken."""
        return _in_a_loop(self.adeliver(), "adeliver")

    async def adeliver(self) -> int:
        """The same in the running loop; asynchronous listeners run in it."""
        engine = await self.bridge.reach(self.engine())
        self.listening.join(engine, asyncio.get_running_loop())
        taken = 0
        while some := await self.bridge.reach(engine.subscribers.turn()):
            taken += some
        return taken

    async def alisten(self) -> None:
        """Tell listeners of events as they come, until called off."""
        engine = await self.bridge.reach(self.engine())
        self.listening.join(engine, asyncio.get_running_loop())
        await self.bridge.reach(engine.subscribers.run())

    def result_of(self, stored: Stored) -> Any:
        """What a completed job returned, as its function promises it."""
        job = self.jobs.get(stored.body.type)
        if job is None:
            return Reader(Any).read(stored.result or "null")
        return job.signature.result(stored.result)

    def close(self) -> None:
        """Let go of the store. It is opened again when it is needed again."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()


def _in_a_loop(work: Coroutine[Any, Any, R], twin: str) -> R:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    work.close()
    raise InsideLoop(f"An event loop is running in this thread: await {twin}() instead")
