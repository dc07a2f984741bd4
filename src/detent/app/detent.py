"""`Detent`: the object that a program declares its jobs on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast
from uuid import UUID

from detent.app.asking import Call, conn_of, need_calls
from detent.app.checking import id_of, need
from detent.app.connection import Connection
from detent.app.elsewhere import APP_WORDS, Hinting
from detent.app.fast_path import aplaced, placed
from detent.app.handle import Handle
from detent.app.job import Declare, Job
from detent.app.listening import Listener, Listening
from detent.app.operating import Gated
from detent.app.options import CallOptions, JobOptions, need_known
from detent.app.schedules import ScheduleOptions, Schedules
from detent.app.selecting import Selecting, Selection, chosen_by
from detent.app.shapes import Workflow, need_workflow
from detent.app.workflow import WorkflowHandle, begin
from detent.complaining import Complaint
from detent.engine import limits
from detent.engine.engine import Engine
from detent.engine.enqueueing import Answer, Clash, Enqueued
from detent.errors import BadOption, DetentError, InsideLoop, JobExists, StoreError
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor, Refusal
from detent.runtime.bridge import Bridge, awaiting, blocking, need_no_loop
from detent.runtime.context import Context
from detent.runtime.encoding import Reader
from detent.runtime.middleware import Around, Arounds
from detent.runtime.signature import Signature
from detent.stores.api import GateKind

if TYPE_CHECKING:
    from detent.app.working import Working, WorkingOptions

_log = logging.getLogger(__name__)
UPKEEP_RETRY_S = 1.0
R = TypeVar("R")
J = TypeVar("J", bound=Job[..., Any, ..., Any])
A = TypeVar("A", bound=Around[Call[Any]])
B = TypeVar("B", bound=Around[Context])
F = TypeVar("F", bound=Callable[[Event], Any])


class Detent(Hinting):
    """Jobs, and the store they are kept in.

    Without an address it is that of `DETENT_STORE`, `DETENT_URL` or `DATABASE_URL`, else the file
    `detent.db` in the working directory. A function is asked for it whenever the store is opened,
    for settings that may change after the app is made. `actor` is who the history names as the one
    who enqueued and cancelled. Options are those of every job that has no other word. Nothing is
    opened before it is needed.
    """

    words = APP_WORDS

    def __init__(
        self,
        url: str | Callable[[], str] | None = None,
        *,
        actor: str = "python",
        clock: Callable[[], int] | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        need_known(options)
        self.by = By(Actor.USER, actor)
        self.jobs: dict[str, Job[..., Any, ..., Any]] = {}
        self.engine_types: dict[str, bytes] = {}
        """The JSON Schemas of payloads, by job type; engines run these jobs, and we do not."""
        self.job = Declare(self, cast("JobOptions", options))
        self.other_queues: list[str] = []
        """Queues that no job is declared on and that its workers serve all the same."""
        self.listening = Listening()
        self.calls: Arounds[Call[Any]] = Arounds()
        """What is done around every enqueue."""
        self.runs: Arounds[Context] = Arounds()
        """What is done around every run."""
        self.connection = Connection(url, clock)
        self.schedules = Schedules(self)
        self._told: tuple[Engine | None, int] = (None, 0)

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self.connection.bridge

    @property
    def handlers(self) -> dict[str, Signature]:
        """The functions by the type of job that they run."""
        return {name: job.signature for name, job in self.jobs.items()}

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that its jobs name, in the order they were declared, and other ones."""
        named = [job.options.get("queue") for job in self.jobs.values()]
        return tuple(dict.fromkeys(name for name in (*named, *self.other_queues) if name))

    def move_to(self, url: str | None) -> None:
        """Use another store than the program names; nothing may have been opened yet."""
        if url is not None:
            self.connection.move_to(url)

    async def engine(self) -> Engine:
        """The engine; ask for it, and use it, in the loop of the bridge."""
        engine = await self.connection.engine()
        if self._told != (engine, len(self.jobs)):
            await engine.declared.tell(
                {name: one.hidden.declared for name, one in self.handlers.items()}
            )
            self._told = (engine, len(self.jobs))
        return engine

    @property
    def ready(self) -> Engine | None:
        """The engine, if it is open and has heard of all that is declared; from any thread."""
        engine = self.connection.ready
        return engine if engine is not None and self._told == (engine, len(self.jobs)) else None

    def add(self, job: Job[..., Any, ..., Any]) -> None:
        """Register a job type; two of one name would run each other's jobs."""
        if job.name in self.jobs:
            why = f"Two jobs are called {job.name!r}: give one of them another name="
            raise BadOption(why, option="name", value=job.name)
        self.jobs[job.name] = job

    def engine_type(self, name: str, schema: Mapping[str, Any]) -> None:
        """Declare a type of jobs that engines run, by the JSON Schema of its payload.

        A server that is told of this app refuses what does not fit before it is queued. A function
        that is declared with `@app.job` serves as well: its signature is its schema.
        """
        # Few programs need it.
        from detent.surfaces.http.json_schema import (  # noqa: PLC0415
            BadSchema,
            declare_schema,
        )

        limits.need_name("job type", name)
        try:
            self.engine_types[name] = declare_schema(dict(schema))
        except BadSchema as error:
            raise BadOption(
                f"{name}: this schema cannot be used: {error}", option="schema"
            ) from None

    def schedule(self, expression: str, /, **options: Unpack[ScheduleOptions]) -> Callable[[J], J]:
        """Declare that the job is to be enqueued at these times; stands above `@app.job`.

        `schedules.add` does the same for a call with arguments.
        """
        return self.schedules.of(expression, options)

    def around_enqueue(self, function: A) -> A:
        """Do something around every enqueue: a generator that gets the call and yields once.

        It runs where the caller is. Before the yield it may change the options of the call, or
        raise to refuse it; after the yield the job is durable, or with `conn` as durable as your
        transaction. It stands around jobs of workflows too, but neither around `ctx.enqueue` nor
        around the slots of schedules: those are made by the engine, in commits of its own.
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

        for word in words:
            need("on", word, isinstance(word, str), 'used with words: @app.on("completed")')

        def register(function: F) -> F:
            called = name or function.__qualname__
            self.listening.add(Listener(called, function, words, kind, from_start))
            return function

        return register

    def by_whom(self, actor: str | None) -> By:
        """Who the history names: somebody in particular, or whoever the app stands for."""
        return self.by if actor is None else By(Actor.USER, actor)

    def select(self, **chosen: Unpack[Selecting]) -> Selection:
        """The jobs that fit, to look at them or to do something to all of them.

        `for job in select(state="discarded")`, `select(queue="mail").hold("why")`. Without a tenant
        those of the nameless one; every verb can be tried with `dry_run` first.
        """
        return Selection(self, chosen_by(cast("dict[str, str]", chosen)))

    async def _pause(
        self, reason: str | None = None, *, actor: str | None = None, **what: Unpack[Gated]
    ) -> bool:
        """Let no job of a queue or a type start: `pause(queue="mail")`. False if none could.

        What runs goes on, and what is enqueued waits, until it is resumed.
        """
        operators, kind, name = (await self.engine()).operators, *_gated(what)
        tenant = what.get("tenant", "")
        return await operators.pause(kind, name, self.by_whom(actor), reason, tenant=tenant)

    async def _resume(
        self, reason: str | None = None, *, actor: str | None = None, **what: Unpack[Gated]
    ) -> bool:
        """Let jobs of a queue or a type start again; false if they could."""
        operators, kind, name = (await self.engine()).operators, *_gated(what)
        tenant = what.get("tenant", "")
        return await operators.resume(kind, name, self.by_whom(actor), reason, tenant=tenant)

    pause, apause = blocking(_pause), awaiting(_pause)
    resume, aresume = blocking(_resume), awaiting(_resume)

    def handle(self, id: str | UUID, tenant: str = "") -> Handle[Any]:  # noqa: A002
        """The job of this id, whether it is there or not."""
        return Handle(self, id_of(id), tenant, is_new=False)

    def workflow(self, id: str | UUID, tenant: str = "") -> WorkflowHandle[Any]:  # noqa: A002
        """The workflow of this id, whether it is there or not."""
        return WorkflowHandle(self, id_of(id), tenant, is_new=False)

    def start(
        self,
        workflow: Workflow[R],
        *,
        id: str | None = None,  # noqa: A002
        name: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> WorkflowHandle[R]:
        """Make the workflow and its jobs, all or nothing; when this returns they are durable.

        Under an `id` of your own a second start of the same is the first one (`is_new` false).
        """
        own = need_workflow(workflow)
        own = own.copy() if self.calls else own
        with self.calls.waited(list(own.calls), self.bridge):
            return self.bridge.run(begin(self, own, id, name, meta))

    async def astart(
        self,
        workflow: Workflow[R],
        *,
        id: str | None = None,  # noqa: A002
        name: str = "",
        meta: Mapping[str, Any] | None = None,
    ) -> WorkflowHandle[R]:
        """The same, awaited."""
        own = need_workflow(workflow)
        own = own.copy() if self.calls else own
        async with self.calls.awaited(list(own.calls)):
            return await self.bridge.reach(begin(self, own, id, name, meta))

    async def place_many(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Enqueue many. All are checked first; then each is a commit or a refusal of its own.

        When a job is in the way of one, the others are enqueued all the same: `enqueued` in the
        fields of the error has their ids.
        """
        limits.need_batch(len(calls))
        engine = await self.engine()
        now = engine.store.now()
        asks = [call.ask(now) for call in calls]
        for ask in asks:
            limits.need_job(ask)
        await self.connection.set_limits_of(calls)
        answers = await engine.enqueue(asks, self.by)
        return self.handles_of(calls, answers)

    def handles_of(self, calls: Sequence[Call[R]], answers: Sequence[Answer]) -> list[Handle[R]]:
        """The jobs that were answered; `JobExists` if another was in the way of one."""
        handles: list[Handle[R]] = []
        errors: list[DetentError] = []
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Enqueued):
                handles.append(self.handle_of(call.signature.name, answer))
            else:
                errors.append(_error_of(call.signature.name, answer))
        if errors:
            errors[0].fields["enqueued"] = [handle.id for handle in handles if handle.is_new]
            raise errors[0]
        return handles

    def handle_of(self, name: str, answer: Answer) -> Handle[Any]:
        """The job that was answered to whoever asked for one of that name."""
        if isinstance(answer, Enqueued):
            return Handle(self, answer.job.id, answer.job.tenant, is_new=answer.is_new)
        raise _error_of(name, answer)

    def enqueue_many(self, calls: Iterable[Call[Any]], *, conn: Any = None) -> list[Handle[Any]]:
        """A job per call, of any types, in few commits; a handle for each, in order.

        With `conn` they are made in the transaction of that connection, in this thread: all or
        none. Otherwise an error of the store says in `fields` which are stored (`enqueued`) and
        which may be (`unknown`); calls with an `idempotency_key` can simply be made again.
        """
        return self.enqueue_calls(need_calls(calls), conn)

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, conn: Any = None
    ) -> list[Handle[Any]]:
        """The same, awaited; `conn` is one that is awaited too."""
        return await self.aenqueue_calls(need_calls(calls), conn)

    def enqueue_calls(self, calls: Sequence[Call[R]], conn: Any) -> list[Handle[R]]:
        """Enqueue through a connection, or if there is none, through the store."""
        conn = conn_of(calls, conn)
        if not self.calls:
            return self._enqueued(calls, conn)
        own = self.own(calls)
        with self.calls.waited(own, self.bridge):
            return self._enqueued(own, conn)

    def _enqueued(self, calls: Sequence[Call[R]], conn: Any) -> list[Handle[R]]:
        if conn is not None and not self.connection.is_memory:
            from detent.app.inside import enqueue_inside  # noqa: PLC0415 - not loaded by programs that only enqueue

            return enqueue_inside(self, calls, conn)
        short = placed(self, calls)
        return self.bridge.run(self.place_many(calls)) if short is None else short

    async def aenqueue_calls(self, calls: Sequence[Call[R]], conn: Any) -> list[Handle[R]]:
        """The same, awaited."""
        conn = conn_of(calls, conn)
        if not self.calls:
            return await self._aenqueued(calls, conn)
        own = self.own(calls)
        async with self.calls.awaited(own):
            return await self._aenqueued(own, conn)

    def own(self, calls: Sequence[Call[R]]) -> Sequence[Call[R]]:
        """Copies, if something around the enqueue may change them."""
        return [call.copy() for call in calls] if self.calls else calls

    async def _aenqueued(self, calls: Sequence[Call[R]], conn: Any) -> list[Handle[R]]:
        if conn is not None and not self.connection.is_memory:
            from detent.app.inside import aenqueue_inside  # noqa: PLC0415 - not loaded by programs that only enqueue

            return await aenqueue_inside(self, calls, conn)
        short = await aplaced(self, calls)
        return await self.bridge.reach(self.place_many(calls)) if short is None else short

    def _set_limits(self, calls: Iterable[Call[Any]]) -> Coroutine[Any, Any, None]:
        """Tell the store of the limits of these calls, which enqueueing does by itself.

        Only before enqueueing in a transaction of one's own it must be done by hand.
        """
        return self.connection.set_limits_of(list(calls))

    set_limits, aset_limits = blocking(_set_limits), awaiting(_set_limits)

    def drain(self) -> list[str]:
        """Run every job that is due, one after the other, here; the ids of those that were run.

        A job whose process was killed is among them at once if that ran on this host. Otherwise it
        is as soon as its lease is over, 15 seconds after its last heartbeat; if nobody had looked
        after the store meanwhile, some calls later: all get 15 seconds to speak up first, and a
        silence between two calls counts for 3 of them at most.
        """
        return _in_a_loop(self.adrain(), "adrain")

    async def adrain(self) -> list[str]:
        """The same in the running loop."""
        from detent.runtime.draining import Drain  # noqa: PLC0415 - not loaded by programs that only enqueue
        from detent.runtime.otel_spans import traced  # noqa: PLC0415 - not loaded by programs that only enqueue

        engine = await self.bridge.reach(self.engine())
        await self.schedules.aput()
        return await Drain(engine, self.bridge, self.handlers, around=traced(self.runs)).run()

    def working(self, **options: Unpack[WorkingOptions]) -> Working:
        """A worker in the running loop: `async with app.working(slots=10): ...`."""
        from detent.app.working import Working  # noqa: PLC0415 - not loaded by programs that only enqueue

        return Working(self, options)

    async def aworker(self, **options: Unpack[WorkingOptions]) -> None:
        """Work until called off; jobs that run may finish then, within the grace."""
        from detent.app.working import work  # noqa: PLC0415 - not loaded by programs that only enqueue

        await work(self, options)

    def worker(self, **options: Unpack[WorkingOptions]) -> None:
        """Work in this process until it is asked to end, by Ctrl-C or SIGTERM."""
        from detent.app.working import work_until_told  # noqa: PLC0415 - not loaded by programs that only enqueue

        _in_a_loop(work_until_told(self, options), "aworker")

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

    def returned(self, type: str, text: str | None) -> Any:  # noqa: A002
        """What a completed job of that type returned, as its function promises it."""
        job = self.jobs.get(type)
        return Reader(Any).read(text or "null") if job is None else job.signature.result(text)

    async def aupkeep(self) -> None:
        """Do what time asks for until called off: schedules, retries, deadlines, lost workers.

        It begins with the schedules that the program declares. Any number of processes may do it.
        """
        await self.schedules.aput()
        await self.bridge.reach(self._keep_up())

    async def _keep_up(self) -> None:
        engine = await self.engine()
        complaint = Complaint(_log, "upkeep cannot go on")
        while True:
            try:
                await engine.upkeep.run()
            except StoreError as error:
                if not error.retryable:
                    _log.exception("upkeep has ended, and with it retries and schedules")
                    raise
                complaint.say(str(error))
                await asyncio.sleep(UPKEEP_RETRY_S)

    def close(self) -> None:
        """Let go of the store. It is opened again when it is needed again."""
        self.connection.close()

    async def aclose(self) -> None:
        """The same, awaited: whatever was asked for is finished first, and may take a moment."""
        # Whoever closes it waits for the bridge, which no loop may do.
        await asyncio.to_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _gated(what: Gated) -> tuple[GateKind, str]:
    told = [(kind, str(what[kind.value])) for kind in GateKind if kind.value in what]
    if len(told) != 1:
        why = "Say what is paused or resumed: queue=... or type=..., one of them"
        raise BadOption(why, option="queue")
    return told[0]


def _error_of(name: str, answer: Clash | Refusal) -> DetentError:
    if isinstance(answer, Refusal):
        return answer.error()
    job, what = answer.by, answer.what
    why = f"job {job.id} is in the way ({what}), and it is {job.state}"
    told = {"id": job.id, "what": what, "state": job.state.value}
    return JobExists(f"{name}: {why}", **told)


def _in_a_loop(work: Coroutine[Any, Any, R], twin: str) -> R:
    try:
        need_no_loop()
    except InsideLoop:
        work.close()
        why = f"An event loop is running in this thread: await {twin}() instead"
        raise InsideLoop(why) from None
    # Not while an exception is handled: whatever a coroutine raises would seem to come of that.
    return asyncio.run(work)
