"""What a handler sees of its own run, and what it says about it.

Saying is cheap: lines and progress are kept here and carried to the store by the runner, now and
then and at the end. Only a checkpoint waits until it is safe, because that is what it is for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, overload

import msgspec

from detent.engine import limits
from detent.engine.asks import Ask, born, is_keyed
from detent.engine.commands import Beside, Change
from detent.engine.completing import Completing, End
from detent.engine.engine import Engine
from detent.engine.progress import Result
from detent.engine.trace import Trace
from detent.engine.trace import read as read_trace
from detent.errors import BadArguments, BadOption, BadResult, NoStore
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.runtime.bridge import Bridge, awaiting, blocking
from detent.runtime.encoding import BadValue, Reader, digest_of, encode, mended
from detent.runtime.masking import Mask
from detent.runtime.office import Office
from detent.runtime.outcomes import Cancelled
from detent.stores.api import Limit, Line, Note, Stored, key_of

T = TypeVar("T")
PERCENT_MAX = 100
_LEVEL_MAX = 20
_CLEAR = Mask()
"""Most jobs have no secrets, and share the mask that hides nothing."""
_TAKING = threading.Lock()
"""Lines are taken by who reports the end and by who carries them meanwhile: each by one of both."""


class Asking(Protocol):
    """A call of a job, with its options."""

    @property
    def conn(self) -> Any:
        """The connection in whose transaction it is to be enqueued, if it names one."""
        ...

    def ask(self, now: int) -> Ask:
        """What the engine is asked for."""
        ...

    def limit(self) -> dict[tuple[str, str], Limit]:
        """The limit that it is to run under, by tenant and key, if it names one."""
        ...


class Heard:
    """What a run has said and not yet been carried to the store, and what it is to hear.

    Handlers speak from threads of their own: a list and plain attributes are all they touch.
    """

    __slots__ = ("_chars", "_dropped", "_said", "calls", "is_cancelled", "lines", "mask", "note")

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.note: Note | None = None
        self.mask = _CLEAR
        """What hides the job's secrets, in whatever is said."""
        self.is_cancelled = False
        self.calls: list[Asking] = []
        self._said = 0
        self._chars = 0
        self._dropped = 0

    def kept(self, text: str, most: int) -> str:
        """The text as it may be stored. Masked before it is cut: half a secret is not known."""
        return mended(self.mask(text), most)

    def say(self, text: str, level: str, at: int) -> None:
        """A line for the log, unless the run has said all that one run may say."""
        line = self.kept(text, limits.LINE_CHARS_MAX)
        self._said += 1
        self._chars += len(line)
        if self._said > limits.LOG_LINES_MAX or self._chars > limits.LOG_CHARS_MAX:
            self._dropped += 1
        else:
            self.lines.append(Line(at, line, self.kept(str(level), _LEVEL_MAX)))

    def rest(self, now: int) -> tuple[Line, ...]:
        """The lines that are not in the store yet, and how many will never be."""
        if not self._dropped:
            return tuple(self.lines)
        most = f"{limits.LOG_LINES_MAX} lines and {limits.LOG_CHARS_MAX} characters"
        told = f"{self._dropped} more lines were dropped: a run may log {most}"
        return (*self.lines, Line(now, told, "warning"))

    def last(self, now: int) -> tuple[Line, ...]:
        """The same, handed over: what goes with the end is carried by nobody else."""
        if not self.lines and not self._dropped:
            return ()
        with _TAKING:
            lines = self.rest(now)
            self.lines.clear()
            return lines

    def take(self, most: int) -> tuple[list[Line], Note | None]:
        """What is to be carried to the store now; what cannot be is given back."""
        with _TAKING:
            note, self.note = self.note, None
            taken = self.lines[:most]
            del self.lines[: len(taken)]
            return taken, note

    def give_back(self, lines: Sequence[Line], note: Note | None) -> None:
        """The store did not take it."""
        self.lines[:0] = lines
        self.note = self.note or note

    def noted(self, note: Note) -> None:
        """How far it is; the newest word counts."""
        self.note = note

    @property
    def is_full(self) -> bool:
        """Whether whatever is said from now on is only counted."""
        return self._said >= limits.LOG_LINES_MAX or self._chars >= limits.LOG_CHARS_MAX

    def drop(self, lines: int) -> None:
        """That many lines were said, and are not even worth being brought here."""
        self._dropped += lines


def need_no_conn(calls: Iterable[Asking]) -> None:
    """Refuse calls that are to be part of a transaction: they are part of the end of a job."""
    if any(call.conn is not None for call in calls):
        why = "The end of a job cannot be part of a transaction of your own"
        raise BadOption(f"{why}: bind the call without conn", option="conn")


class Ending(msgspec.Struct, frozen=True):
    """How a job of an earlier step ended; `value` is what it returned, if it completed."""

    job_id: str
    type: str
    state: str
    value: Any = None


class Promise(Protocol):
    """What is known of a handler: the type that it returns."""

    def result(self, text: str | None) -> Any:
        """What it returned, as that type."""
        ...


_NOBODY: Mapping[str, Promise] = {}


class Context:
    """One attempt at one job. A handler gets it as its first parameter, if that is annotated so."""

    def __init__(
        self,
        stored: Stored,
        engine: Office,
        bridge: Bridge,
        by: By,
        handlers: Mapping[str, Promise] = _NOBODY,
    ) -> None:
        self._stored = stored
        self._engine = engine
        self._handlers = handlers
        self._bridge = bridge
        self._by = by
        self._checkpoint = stored.checkpoint
        self.heard = Heard()
        """What the runner carries; not for handlers."""

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self._bridge

    @property
    def job_id(self) -> str:
        """The job's id; the same in every attempt, so a good idempotency key for others."""
        return self._stored.job.id

    @property
    def job_type(self) -> str:
        """The name that the function is known by."""
        return self._stored.body.type

    @property
    def queue(self) -> str:
        """The queue that the job was taken from."""
        return self._stored.job.queue

    @property
    def attempt(self) -> int:
        """How many times the job has been started, this time included."""
        return self._stored.job.attempt

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self._stored.job.tenant

    @property
    def trace(self) -> Trace | None:
        """The request that the job was enqueued in, as W3C Trace Context; `None` if not known."""
        return read_trace(self._stored.body.meta)

    @property
    def cancelled(self) -> bool:
        """Whether the run should stop: a cancel was asked for, or the job is no longer ours."""
        return self.heard.is_cancelled

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the run should stop; call it wherever stopping is safe."""
        if self.heard.is_cancelled:
            raise Cancelled

    def now(self) -> int:
        """The time of the store, in microseconds."""
        return self._engine.store.now()

    def log(self, text: object, level: str = "info") -> None:
        """A line for the job's log. What cannot be stored is mended: a log never fails a job."""
        self.heard.say(str(text), level, self.now())

    def progress(self, percent: float, text: str = "") -> None:
        """How far it is, from 0 to 100; the newest word counts."""
        if not _is_percent(percent):
            why = f"Progress is a number from 0 to {PERCENT_MAX}, not {percent!r:.60}"
            raise BadOption(why, option="percent", value=percent)
        line = self.heard.kept(str(text), limits.LINE_CHARS_MAX)
        self.heard.noted(Note(self.now(), self.attempt, int(percent), line))

    def enqueue(self, *calls: Asking) -> None:
        """Enqueue these calls, made with `bind`, in the commit that completes this job.

        Both happen or neither: a run that fails, is lost or is called off leaves none of them. A
        call with a unique or an idempotency key is refused, because another job that has it would
        be in the way of the end itself.
        """
        for call in calls:
            if not hasattr(call, "ask"):
                why = f"A {type(call).__name__} is no call: ctx.enqueue(job.bind(...), ...)"
                raise BadArguments(why, path="")
        need_no_conn(calls)
        for call in calls:
            self._need_fit(call.ask(self._engine.store.now()))
        limits.need_followers(len(self.heard.calls) + len(calls))
        self.heard.calls.extend(calls)

    def _need_fit(self, ask: Ask) -> None:
        """What could not be made at the end is refused now, where the handler can still hear it."""
        limits.need_job(ask)
        if is_keyed(ask):
            why = "a job with a key of its own cannot be enqueued with the end of another"
            raise BadOption(f"{ask.type}: {why}: enqueue it by itself", option="unique")
        about = j.Context(By(Actor.USER, self.job_id), self.job_id, place=1)
        sealed = self._engine.secrets.sealed(ask, self.job_id)
        refusal = born(sealed, self.job_id, self._engine.store.now(), about)
        if isinstance(refusal, Refusal):
            raise refusal.error()

    def complete(self, result: object = None, *, conn: Any) -> None:
        """End this job with that result in your own transaction: with your rows, or not at all.

        It has ended when you commit; what the handler returns or raises after that changes nothing.
        Roll back, and the run goes on as if this had not been called. What `enqueue` was told so
        far comes with it. Refused for a job of a workflow, and when the job is no longer ours.
        """
        if not self._local().store.has_transactions:
            self._bridge.run(self._complete(result))
            return
        from detent.stores import inside  # noqa: PLC0415 - not loaded by programs that only enqueue

        end = self._end(result)
        for unit in end.units():
            end.hear(inside.complete(conn, unit, end.now, clock=self._engine.store.now))

    async def acomplete(self, result: object = None, *, conn: Any) -> None:
        """The same for a connection that is awaited."""
        if not self._local().store.has_transactions:
            await self._bridge.reach(self._complete(result))
            return
        from detent.stores import inside  # noqa: PLC0415 - not loaded by programs that only enqueue

        end = self._end(result)
        for unit in end.units():
            end.hear(await inside.acomplete(conn, unit, end.now, clock=self._engine.store.now))

    async def _complete(self, result: object) -> None:
        """In memory nobody has transactions of their own: it ends at once."""
        end, store = self._end(result), self._local().store
        for unit in end.units():
            end.hear((await store.step([unit], now=end.now)).outcomes[0])

    def _end(self, result: object) -> Completing:
        try:
            text = encode(result).decode()
        except BadValue as bad:
            raise BadResult(f"The result is no JSON: {bad}", why=bad.why) from None
        limits.need_result("result", text)
        now = self._engine.store.now()
        if any(call.limit() for call in self.heard.calls):
            why = "A limit cannot be set inside a transaction of your own"
            raise BadOption(f"{why}: enqueue such jobs by themselves", option="limit")
        asks = tuple(call.ask(now) for call in self.heard.calls)
        end = End(text, digest_of(text), asks)
        return Completing(self._local(), self._stored, self._by, end)

    def _local(self) -> Engine:
        """The engine, where there is one; `NoStore` where only somebody else has the database."""
        if isinstance(self._engine, Engine):
            return self._engine
        why = "This run has no database of Detent's own, so its job cannot end in a transaction"
        raise NoStore(f"{why}: return the result, and let the worker report it", what="complete")

    @overload
    def saved(self) -> Any: ...
    @overload
    def saved(self, kind: type[T]) -> T | None: ...
    def saved(self, kind: Any = Any) -> Any:
        """The newest checkpoint of this or an earlier attempt, as that type; `None` if none."""
        try:
            return None if self._checkpoint is None else Reader(kind).read(self._checkpoint)
        except BadValue as bad:
            why = f"The checkpoint of an earlier attempt is no {kind!r:.60}: {bad}"
            raise BadResult(why, path=bad.path, why=bad.why) from None

    async def _save(self, value: object) -> None:
        """Keep a checkpoint. When this returns it survives whatever happens to the run."""
        try:
            text = encode(value).decode()
        except BadValue as bad:
            raise BadResult(f"The checkpoint cannot be kept: {bad}", why=bad.why) from None
        limits.need_result("checkpoint", text)
        await self.keep(text)

    async def keep(self, text: str) -> None:
        """The same for one that is written already; in the loop of the bridge."""
        job = self._stored.job
        command = j.Checkpoint(lease=job.lease, digest=digest_of(text))
        change = Change(key_of(job), command, self._by, beside=Beside(checkpoint=text))
        [answer] = await self._engine.carry_out([change])
        if isinstance(answer, Refusal):
            raise answer.error()
        self._checkpoint = text

    async def _results(self, step: str | None = None) -> list[Any]:
        """What the completed jobs of an earlier step returned, in the order of their calls.

        Each is of the type that its function promises. Without a name it is about the steps that
        this one waits for; outside of a workflow there is nothing.
        """
        return [one.value for one in await self._endings(step) if one.state == "completed"]

    async def _endings(self, step: str | None = None) -> list[Ending]:
        """How each job of an earlier step ended, those without a result too."""
        return [self._ending(one) for one in await self.found(step)]

    async def found(self, step: str | None) -> list[Result]:
        """The same as it is stored; in the loop of the bridge."""
        flows, job = self._engine.workflows, self._stored.job
        before = await flows.before(job)
        if step is not None and step not in before.all:
            why = f"No step {step!r} comes before this one: {', '.join(before.all) or 'none does'}"
            raise BadOption(why, option="step", value=step)
        found: list[Result] = []
        for name in before.near if step is None else (step,):
            found += await flows.results_of((job.tenant, job.workflow or ""), name)
        return found

    save, asave = blocking(_save), awaiting(_save)
    results, aresults = blocking(_results), awaiting(_results)
    endings, aendings = blocking(_endings), awaiting(_endings)

    def _ending(self, one: Result) -> Ending:
        if one.state != j.JobState.COMPLETED:
            return Ending(one.job_id, one.type, one.state)
        known = self._handlers.get(one.type)
        value = (
            Reader(Any).read(one.result or "null") if known is None else known.result(one.result)
        )
        return Ending(one.job_id, one.type, one.state, value)


def _is_percent(value: object) -> bool:
    return isinstance(value, int | float) and 0 <= value <= PERCENT_MAX
