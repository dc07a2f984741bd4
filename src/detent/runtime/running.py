"""Runs one claimed job: its handler, what it says meanwhile, and the report of how it ended.

The handler runs in the loop of whoever calls, or in a thread when it is a plain function; the store
is reached across the bridge, so a handler that blocks holds up nobody's commits.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from detent.engine.commands import Change
from detent.engine.engine import Engine
from detent.engine.secrets import Owner
from detent.errors import StoreError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.runtime.bridge import Bridge
from detent.runtime.context import Asking, Context, Heard
from detent.runtime.ending import Raised, ending
from detent.runtime.masking import Mask
from detent.runtime.middleware import Arounds
from detent.runtime.signature import Signature
from detent.stores.api import LimitKind, LimitRow, Line, Note, Stored, key_of

__all__ = ["Moment", "Runner"]

WATCH_S = 0.1
"""How often a run looks whether it should stop, and has its words carried to the store."""


class Moment(StrEnum):
    """Where a worker can die between claiming a job and hearing that its end is stored."""

    AFTER_CLAIM = "after_claim"
    BEFORE_REPORT = "before_report"
    AFTER_COMMIT = "after_commit"


def _go_on(_: Moment) -> None:
    """Nothing happens."""


class Runner:
    """Runs jobs whose handlers it knows, under the name of one worker.

    `at` is told each moment; whatever it raises is what a crash there would look like.
    """

    def __init__(
        self,
        engine: Engine,
        bridge: Bridge,
        handlers: Mapping[str, Signature],
        by: By,
        at: Callable[[Moment], None] = _go_on,
    ) -> None:
        self.around: Arounds[Context] = Arounds()
        """What is done around every run."""
        self._engine = engine
        self._bridge = bridge
        self._handlers = handlers
        self._by = by
        self._at = at

    async def run(self, stored: Stored) -> j.Answer:
        """Run it and report; the answer is a refusal when the job was no longer ours."""
        self._at(Moment.AFTER_CLAIM)
        ctx = Context(stored, self._engine, self._bridge, self._by, self._handlers)
        watch = asyncio.create_task(self._watch(stored, ctx))
        try:
            returned = await self._returned(stored, ctx)
        finally:
            watch.cancel()
            await asyncio.wait([watch])
        self._at(Moment.BEFORE_REPORT)
        await self._bridge.reach(self._note(stored, ctx.heard.note))
        now = self._engine.store.now()
        change = ending(stored, returned, self._by, ctx.heard, now)
        change = await self._bridge.reach(self._followed(change, ctx.heard.calls, now))
        answer = await self._bridge.reach(self._report(stored, change))
        self._at(Moment.AFTER_COMMIT)
        return answer

    async def _returned(self, stored: Stored, ctx: Context) -> Any:
        """What the handler returned or raised."""
        try:
            signature = self._handlers[stored.body.type]
            bound = signature.arguments(self._opened(stored, ctx))
            args = (ctx, *bound.args) if signature.wants_context else bound.args
            call = partial(signature.function, *args, **bound.kwargs)
            if inspect.iscoroutinefunction(signature.function):
                return await self._in_loop(ctx, call)
            return await self._in_thread(ctx, call)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Not we were called off: the handler let somebody else's end escape.
            return Raised(error)
        except (Exception, SystemExit) as error:
            return Raised(error)

    async def _in_loop(self, ctx: Context, call: Callable[[], Any]) -> Any:
        """A coroutine; if something around it swallows its error, it has returned nothing."""
        async with self.around.awaited([ctx]):
            return await call()

    async def _in_thread(self, ctx: Context, call: Callable[[], Any]) -> Any:
        """A plain function in a thread, with what is as plain as it around it in there."""
        inner, outer = self.around.sync_ones(), self.around.async_ones()
        async with outer.awaited([ctx]):
            ended = await asyncio.to_thread(_called, inner, ctx, call)
            if outer and isinstance(ended, Raised) and ended.is_plain:
                # Those around it hear of it; what no coroutine could carry ends the run as it is.
                raise ended.error
            return ended

    def _opened(self, stored: Stored, ctx: Context) -> str:
        """The payload with its secrets; from here on whatever the run says is masked."""
        job = stored.job
        owner = Owner(job.tenant, job.id, stored.body.type)
        opened = self._engine.secrets.opened(stored.body.payload, owner)
        ctx.heard.mask = Mask(opened.values)
        return opened.payload

    async def _followed(self, change: Change, calls: Sequence[Asking], now: int) -> Change:
        """The same with the jobs that are to come into being with it, if it completes the job."""
        if not calls or not isinstance(change.command, j.Complete):
            return change
        rows = [
            LimitRow(LimitKind.KEY, key, limit, tenant)
            for call in calls
            for (tenant, key), limit in call.limit().items()
        ]
        if rows:
            await self._engine.store.set_limits(rows, now=now)
        return msgspec.structs.replace(change, new=tuple(call.ask(now) for call in calls))

    async def _report(self, stored: Stored, change: Change) -> j.Answer:
        """The last lines go with the end, in one commit; of an end that is refused they stay."""
        [answer] = await self._engine.carry_out([change])
        if isinstance(answer, Refusal) and answer.code == "not_asked":
            # It stopped of its own accord, as if it had been asked to: that is a discard.
            failed = j.Fail(lease=stored.job.lease, code="DISCARD")
            change = msgspec.structs.replace(change, command=failed)
            [answer] = await self._engine.carry_out([change])
        if isinstance(answer, Refusal):
            await self._keep(stored, change.beside.lines)
        return answer

    async def _watch(self, stored: Stored, ctx: Context) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            # A store that is away for a while is no reason to end a run: what was said is kept.
            with suppress(StoreError):
                ctx.heard.is_cancelled = await self._bridge.reach(self._looked(stored, ctx.heard))

    async def _looked(self, stored: Stored, heard: Heard) -> bool:
        """Carry what was said to the store, and see whether the run should stop."""
        note, lines = heard.note, tuple(heard.lines)
        await self._note(stored, note)
        await self._keep(stored, lines)
        heard.forget(len(lines), note)
        return await self._is_over(stored)

    async def _note(self, stored: Stored, note: Note | None) -> None:
        store, job = self._engine.store, stored.job
        if note is not None and job.lease is not None:
            await store.note([(key_of(job), job.lease, note)], now=store.now())

    async def _keep(self, stored: Stored, lines: Sequence[Line]) -> None:
        if lines:
            key = key_of(stored.job)
            await self._engine.store.append_logs([(key, line) for line in lines])

    async def _is_over(self, stored: Stored) -> bool:
        """Whether it was asked to stop, or the job is no longer ours."""
        [now] = await self._engine.store.get([key_of(stored.job)])
        return now is None or now.job.lease != stored.job.lease or now.job.cancel_at is not None


def _called(around: Arounds[Context], ctx: Context, call: Callable[[], Any]) -> Any:
    try:
        with around.here(ctx):
            return call()
    except BaseException as error:
        # As a value: a future takes neither StopIteration nor what would end this process.
        return Raised(error)
