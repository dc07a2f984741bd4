"""The life of a pool process: one job after the other, in its main thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from detent.engine import limits
from detent.engine.secrets import Opened
from detent.errors import AppMissing, BadResult
from detent.runtime.bridge import Bridge
from detent.runtime.context import Context, Heard
from detent.runtime.encoding import BadValue, encode
from detent.runtime.ending import told_of
from detent.runtime.executors.api import Run
from detent.runtime.executors.capture import Records, captured
from detent.runtime.executors.pool.afar import Afar
from detent.runtime.executors.pool.interrupting import Interrupted, Interruption
from detent.runtime.executors.pool.messages import Begin, End, Ready
from detent.runtime.executors.pool.outlet import Outlet, limited_memory, rss_bytes
from detent.runtime.executors.pool.surroundings import Surroundings
from detent.runtime.executors.pool.wire import Wire
from detent.runtime.masking import Mask
from detent.runtime.middleware import Arounds
from detent.runtime.outcomes import Cancelled, Snooze
from detent.runtime.signature import Signature


class Serving:
    """Runs the jobs that its worker sends."""

    def __init__(self, wire: Wire, interruption: Interruption, outlet: Outlet) -> None:
        self._wire = wire
        self._interruption = interruption
        self._outlet = outlet
        self._runner = asyncio.Runner()

    def serve(
        self, handlers: Mapping[str, Signature], around: Arounds[Context], bridge: Bridge
    ) -> None:
        """Say that we are ready, and run what comes."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Our worker is told to stop, and stops us. Not ignored: children would inherit that.
            signal.signal(number, _leave_it)
        self._wire.say(Ready())
        surroundings = Surroundings()
        with Records():
            for begin in self._wire.jobs():
                ctx = Afar(begin.stored, self._wire, bridge, handlers)
                # In a context of its own: what one job sets there is not for the next to see.
                apart = contextvars.copy_context()
                end = apart.run(self._served, begin, ctx, handlers, around)
                surroundings.restore()
                self._wire.say(end)

    def _served(
        self,
        begin: Begin,
        ctx: Afar,
        handlers: Mapping[str, Signature],
        around: Arounds[Context],
    ) -> End:
        kind = begin.stored.body.type
        if kind not in handlers:
            error = AppMissing(f"There is no job {kind!r} in this program", job=kind)
            return End(told=told_of(error, ctx.heard))
        opened = Opened(begin.stored.body.payload, tuple(begin.secrets))
        ctx.heard.mask = Mask(opened.values)
        run = Run(begin.stored, ctx, handlers[kind], opened, around)
        self._wire.on_halt(partial(setattr, ctx.heard, "is_cancelled", True))
        self._interruption.install()
        with captured(ctx):
            end = self._ended(run, begin.memory_bytes)
        self._outlet.restore()
        if not self._wire.is_ours:
            # A copy that the handler forked has come back from it: it has nothing to say.
            os._exit(0 if end.told is None else 1)
        return msgspec.structs.replace(end, dropped=ctx.sent.dropped, rss_bytes=rss_bytes())

    def _ended(self, run: Run, memory: int | None) -> End:
        try:
            with limited_memory(memory), self._interruption.armed():
                value = self._value(run)
            return _written(value)
        except BaseException as error:
            return _raised(error, run.ctx.heard)

    def _value(self, run: Run) -> Any:
        call = run.call()
        if inspect.iscoroutinefunction(run.signature.function):
            return self._runner.run(self._awaited(run, call), context=contextvars.copy_context())
        with run.around.waited([run.ctx], run.ctx.bridge):
            return call()

    async def _awaited(self, run: Run, call: Callable[[], Any]) -> Any:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (we are in it)
        self._interruption.calls_off(asyncio.get_running_loop(), task)
        try:
            async with run.around.awaited([run.ctx]):
                return await call()
        except asyncio.CancelledError:
            if task.cancelling():
                raise Interrupted("its task was cancelled") from None
            raise


def _raised(error: BaseException, heard: Heard) -> End:
    match error:
        case Interrupted():
            # Whether it was our worker who did that, only our worker knows.
            return End(is_interrupted=True, told=told_of(error, heard))
        case Snooze() if error.after_us is not None:
            return End(snooze_us=error.after_us, reason=error.reason)
        case Cancelled():
            return End(is_cancelled=True, reason=error.reason)
        case _:
            return End(told=told_of(error, heard))


def _written(value: Any) -> End:
    try:
        text = encode(value).decode()
        limits.need_result("result", text)
    except BadValue as bad:
        raise BadResult(f"The result is no JSON: {bad}") from None
    return End(result=text)


def _leave_it(*_: object) -> None:
    """Do nothing."""
