"""The engine as a whole: its connections one after the other, and the jobs it has meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec
import socketio
from socketio.exceptions import SocketIOError

from detent.engine_client.jobs import Gone, JobFault, Pushed, PushedJob, plain
from detent.errors import EngineRefused

_log = logging.getLogger(__name__)

_SPACE: Final = "/engine"
_AGAIN_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_ANSWER_S: Final = 10.0
_BEAT_S: Final = 5.0
_PASSING: Final = frozenset({"UNAVAILABLE", "NOT_REGISTERED", "INTERNAL"})
"""What is worth saying again."""
_TAKEN: Final = "ENGINE_IN_USE"
_CANCELLED: Final = "CANCELLED"

Handler: TypeAlias = Callable[[PushedJob], Awaitable[Any]]


class EngineClient:
    """One engine under an id of its own. `slots` jobs run at a time, `capacity` are in hand.

    A seat that another run has is waited for as long as `patience_s`: whoever starts again after a
    crash finds itself there until the server believes that the former run is dead, 15 s later.
    """

    def __init__(
        self,
        url: str,
        engine_id: str,
        *,
        capacity: int = 1,
        slots: int | None = None,
        key: str | None = None,
        queues: tuple[str, ...] = (),
        patience_s: float = 20.0,
    ) -> None:
        self.boot_id = uuid.uuid4().hex
        self.jobs: dict[str, PushedJob] = {}
        self._url = url
        self._key = key
        self._told = {"engineId": engine_id, "bootId": self.boot_id, "capacity": capacity}
        self._told |= {"queues": list(queues)} if queues else {}
        self._patience_s = patience_s
        self._waits_since: float | None = None
        self._slots = asyncio.Semaphore(slots or capacity)
        self._handlers: dict[str, Handler] = {}
        self._sio: Any = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._waiting: set[asyncio.Future[dict[str, Any]]] = set()

    def handles(self, job_type: str) -> Callable[[Handler], Handler]:
        """Declare who does jobs of a type: what it returns is the result, as JSON."""

        def declare(handler: Handler) -> Handler:
            self._handlers[job_type] = handler
            return handler

        return declare

    @property
    def is_connected(self) -> bool:
        """Whether a server has let it in, and still hears it."""
        return self._ready.is_set()

    async def run(self) -> None:
        """Work until `stop`; `EngineRefused` if the server does not let this engine in."""
        tries = 0
        try:
            while not self._stopping.is_set():
                if await self._session():
                    tries = 0
                await self._pause(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
                tries += 1
        finally:
            await self._leave()

    async def stop(self) -> None:
        """Take no more jobs, finish what runs, and let `run` return."""
        if self._ready.is_set():
            reply = await self.ask("drain", {})
            self._drop(reply.get("jobs", ()), "it was handed back")
        while tasks := [job.task for job in self.jobs.values() if job.task is not None]:
            await asyncio.wait(tasks)
        self._stopping.set()

    # --- the connection -------------------------------------------------------------------------

    async def _session(self) -> bool:
        """One connection, from its beginning to its end; whether there was one."""
        gone = asyncio.Event()
        self._sio = sio = socketio.AsyncClient(reconnection=False, handle_sigint=False)
        refusals: list[Any] = []
        sio.on("job", self._given, namespace=_SPACE)
        sio.on("cancel", self._called_off, namespace=_SPACE)
        sio.on("drain", self._drained, namespace=_SPACE)
        sio.on("connect_error", refusals.append, namespace=_SPACE)
        sio.on("disconnect", lambda *_: gone.set(), namespace=_SPACE)
        auth = {"key": self._key} if self._key else None
        try:
            await sio.connect(
                self._url, auth=auth, namespaces=[_SPACE], transports=["websocket"], retry=False
            )
            beat_s = await self._register()
        except (SocketIOError, OSError) as error:
            _need_passing(refusals)
            _log.info("no connection to %s: %s", self._url, error)
            await sio.disconnect()
            return False
        self._ready.set()
        await self._live(gone, beat_s)
        return True

    async def _register(self) -> float:
        resume = [{"jobId": job.id, "lease": job.lease} for job in self.jobs.values()]
        told = {**self._told, "jobTypes": list(self._handlers), "resume": resume}
        reply = await self._once("register", told)
        error = reply.get("error")
        if error is not None:
            if error.get("code") != _TAKEN or self._is_tired():
                _need_passing([error])
            raise SocketIOError(str(error))
        self._waits_since = None
        self._drop(reply.get("lost", ()), "it was lost")
        beat_ms: float = reply.get("heartbeatMs", _BEAT_S * 1_000)
        return beat_ms / 1_000

    def _is_tired(self) -> bool:
        """Whether its seat has been taken for too long."""
        now = time.monotonic()
        self._waits_since = now if self._waits_since is None else self._waits_since
        return now - self._waits_since >= self._patience_s

    async def _live(self, gone: asyncio.Event, beat_s: float) -> None:
        """Beat until the connection is gone, or nothing is left to do."""
        beating = asyncio.create_task(self._beat(beat_s))
        ends = [asyncio.create_task(one.wait()) for one in (gone, self._stopping)]
        try:
            await asyncio.wait([beating, *ends], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ready.clear()
            for task in (beating, *ends):
                task.cancel()
            for answer in self._waiting:
                answer.set_exception(SocketIOError("the connection is gone"))
            self._waiting.clear()
            await self._sio.disconnect()

    async def _beat(self, beat_s: float) -> None:
        with suppress(SocketIOError, TimeoutError):
            while not await self._pause(beat_s):
                reply = await self._once("heartbeat", {"jobs": list(self.jobs)})
                if reply.get("error") is not None:
                    return
                self._drop(reply.get("gone", ()), "it was lost")

    async def _pause(self, seconds: float) -> bool:
        """Whether this engine is to stop, so long later or at once."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _leave(self) -> None:
        for job in tuple(self.jobs.values()):
            job.stop("the engine ends")
        if self._sio is not None:
            await self._sio.disconnect()

    # --- what is said ---------------------------------------------------------------------------

    async def ask(self, event: str, told: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message, over as many connections as it takes."""
        tries = 0
        while True:
            await self._ready.wait()
            try:
                reply = await self._once(event, told)
            except (SocketIOError, TimeoutError):
                reply = {"error": {"code": "UNAVAILABLE"}}
            if reply.get("error", {}).get("code") not in _PASSING:
                return reply
            await asyncio.sleep(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
            tries += 1

    async def _once(self, event: str, told: dict[str, Any]) -> dict[str, Any]:
        """The answer over this connection."""
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.add(answer)

        def heard(reply: Any = None, *_: Any) -> None:
            if not answer.done():
                answer.set_result(reply if isinstance(reply, dict) else {})

        try:
            await self._sio.emit(event, told, namespace=_SPACE, callback=heard)
            return await asyncio.wait_for(answer, _ANSWER_S)
        finally:
            self._waiting.discard(answer)

    # --- what is heard --------------------------------------------------------------------------

    async def _given(self, told: Any) -> None:
        job = PushedJob(self, msgspec.convert(told, Pushed))
        known = self.jobs.get(job.id)
        if known is not None and known.lease == job.lease:
            return
        if known is not None:
            known.stop("it was given anew")
        self.jobs[job.id] = job
        job.task = asyncio.create_task(self._work(job))

    async def _called_off(self, told: Any) -> None:
        job = self.jobs.get(told["jobId"])
        if job is not None and job.lease == told.get("lease", job.lease):
            job.stop(str(told.get("reason", _CANCELLED)))

    async def _drained(self, told: Any) -> None:
        """The server stops, and has taken these back; the next connection goes on with the rest."""
        self._drop(told.get("jobs", ()), "it was handed back")

    def _drop(self, names: Any, why: str) -> None:
        for name in names:
            if name in self.jobs:
                self.jobs[name].stop(why)

    # --- what is done ---------------------------------------------------------------------------

    async def _work(self, job: PushedJob) -> None:
        try:
            await self._run(job)
        except Gone:
            _log.info("job %s is not ours any more", job.id)
        finally:
            if self.jobs.get(job.id) is job:
                del self.jobs[job.id]

    async def _run(self, job: PushedJob) -> None:
        try:
            result = await self._result(job)
        except asyncio.CancelledError:
            if job.stopping is None:
                raise
            if not job.stopping.startswith(_CANCELLED):
                return
            fault = JobFault(_CANCELLED, "the engine has stopped it")
        except JobFault as error:
            fault = error
        except (Gone, EngineRefused):
            raise
        except Exception as error:
            _log.exception("job %s has failed", job.id)
            fault = JobFault("HANDLER_ERROR", f"{type(error).__name__}: {error}")
        else:
            await job.report("job_complete", **({} if result is None else {"result": result}))
            return
        await job.report("job_failed", error=fault.told)

    async def _result(self, job: PushedJob) -> Any:
        if self._slots.locked():
            await job.report("job_ack", started=False)
            async with self._slots:
                await job.report("job_started")
                return plain(await self._handlers[job.type](job))
        async with self._slots:
            await job.report("job_ack")
            return plain(await self._handlers[job.type](job))


def _need_passing(errors: list[Any]) -> None:
    """Refuse to go on where asking again is of no use."""
    for error in errors:
        code = error.get("code") if isinstance(error, dict) else None
        if code is not None and code not in _PASSING:
            raise EngineRefused(f"{code}: {error.get('message')}", code=code, event="register")
