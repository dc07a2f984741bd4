"""A worker process: `python -m detent.app.fleet.child`, started by a fleet only.

It joins its channel before anything else, so that it dies with its supervisor and its stacks can be
asked for; then it imports the program. It claims nothing before the supervisor says that the store
knows it, and ends under that name once and for all: the next process has another.

What it is told is carried out in the loop of the bridge: a handler that blocks its own loop keeps
nobody from being stopped. Only the answer to a ping comes from the handlers' loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from detent.app.connection import REMOTE
from detent.app.detent import Detent
from detent.app.fleet.orders import LOST, Told
from detent.app.fleet.proof import Proof
from detent.app.loading import load
from detent.app.working import able, executors_of, runner_of
from detent.errors import AppError, DetentError, InstanceLost, StoreError
from detent.extras import needs_extra
from detent.host import working_folder
from detent.runtime.executors.capture import Capture, Masking
from detent.runtime.garbage import settle, sweep_rarely
from detent.runtime.loops import new_loop
from detent.runtime.office import Office
from detent.runtime.process.frames import Message
from detent.runtime.process.inside import Inside, end_session
from detent.runtime.running import JOBS_LOG
from detent.runtime.worker.leaving import STOP_S
from detent.runtime.worker.worker import Worker
from detent.surfaces.http.logs import JSON_LOGS, LOG_LEVEL, log_to_stderr

if TYPE_CHECKING:
    from detent.app.fleet.distant_worker import Distant

_log = logging.getLogger("detent.worker")
TOLD: Final = "DETENT_WORKER"
INSTANCE: Final = "LIFECYCLE_INSTANCE_ID"
SUSPENDED: Final = "LIFECYCLE_SUSPENDED"
_UNREAD: Final = 78
"""The exit code of a worker whose program could not be imported."""
_BROKEN: Final = 70
"""The exit code of a worker whose own loop a handler has broken."""
_STATUS_S: Final = 1.0
_SHARE: Final = 0.75
"""So much of its grace a worker lets jobs finish; the rest is for the others, and for going."""
_LAST: Final = 0.15
"""So much of it, and no more than usual, those have to end that were interrupted."""
_OPEN_RETRY_S: Final = 1.0
_TOLD_S: Final = 0.2
_GRACE_S: Final = 10.0


class Child:
    """One worker, and the conversation of its process with the supervisor."""

    def __init__(
        self, app: Detent, told: Told, inside: Inside, instance: str, home: str | None
    ) -> None:
        self._home = home
        """Where its processes begin too: its program, or a job, may have gone elsewhere since."""
        self._app = app
        self._told = told
        # Read anew, the program may name other queues than its supervisor has read.
        served = told.settings.serving(app.queues)
        self._settings = able(app, served) if told.server is None else served
        self._inside = inside
        self._instance = instance
        self._known = asyncio.Event()
        self._worker: Worker | None = None
        self._ending: asyncio.Task[Any] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._proof = Proof(_unproven)
        self._distant: Distant | None = None
        self._directive = "running"
        self.exit_code = 0
        self.ended_by: int | None = None
        """The signal that ended it, if that did not come from the supervisor."""

    async def run(self) -> None:
        """Work until told to stop."""
        self._loop = asyncio.get_running_loop()
        self._inside.hear_at_once("proven", lambda told: self._proof.renew(float(told["until"])))
        desk = await self._app.bridge.reach(_own_loop())
        self._inside.hear(
            {
                "known": lambda _: self._floor(self._known.set),
                "ping": lambda message: self._floor(partial(self._answer, message)),
                "stop": lambda message: self._stop(float(message["grace_s"])),
                "hasten": lambda message: self._do(self._hasten(float(message["grace_s"]))),
                "suspend": lambda message: self._do(self._suspend(message)),
                "resume": lambda message: self._do(self._resume(message)),
                "lapse": lambda _: self._do(self._lapse()),
                "cancel": self._cancel,
            },
            desk,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            terminated = partial(desk.call_later, _TOLD_S, self._terminated, number)
            self._loop.add_signal_handler(number, desk.call_soon_threadsafe, terminated)
        settings = self._settings
        types = self._app.handlers if settings.types is None else settings.types
        self._inside.tell({"kind": "serves", "queues": settings.served, "types": list(types)})
        executors = executors_of(self._settings, self._told.reference, self._home)
        try:
            with Capture():
                await self._work(await self._made(executors))
        except asyncio.CancelledError:
            # Not by us: a handler has called off whatever there is in its loop. Nobody in here can
            # be trusted to end any more, so all of it ends at once.
            _log.error("a handler has cancelled the tasks of its worker, which ends")
            self._quit(_BROKEN)
        finally:
            if self._distant is not None:
                await self._app.bridge.reach(self._distant.end())
            for executor in executors.values():
                await executor.close()

    async def _made(self, executors: Any) -> Worker:
        """The worker, once whoever keeps the jobs can be reached and knows us."""
        # A database that is away is not our fault: so long, nobody finds us slow to start.
        self._inside.tell({"kind": "waits", "on": True})
        office = await (self._opened() if self._told.server is None else self._joined())
        await self._known.wait()
        self._inside.tell({"kind": "waits", "on": False})
        runner = runner_of(self._app, office, self._instance, executors)
        if self._distant is not None:
            runner.look_s = self._distant.look_s
        self._worker = worker = Worker(runner, self._settings)
        worker.on_company(
            lambda crowded: self._inside.tell({"kind": "company", "crowded": crowded})
        )
        return worker

    async def _joined(self) -> Office:
        """The server; beats go there, and what it wants of us comes back with them."""
        return await self._app.bridge.reach(self._join())

    async def _join(self) -> Office:
        # A megabyte, and most workers have no server.
        with needs_extra("remote", "A worker of a server"):
            from detent.app.fleet.distant_worker import Distant  # noqa: PLC0415

        self._distant = Distant(self._app, self._told, self._instance)
        office = self._distant.office
        office.directed = self._directed
        await self._distant.begin(lambda: self._do(self._lapse()), self._proven)
        self._settings = self._told.settings.serving(self._app.queues, office.key_queues)
        office.serve(self._settings)
        return office

    def _proven(self, until: float) -> None:
        """Our supervisor hears it too: at our end nothing that we say of it would be believed."""
        self._proof.renew(until)
        self._inside.tell({"kind": "proven", "until": until})

    def _directed(self, state: str) -> None:
        """With every beat; only what is new is done."""
        before, self._directive = self._directive, state
        if self._worker is None or state == before:
            return
        if state == "quiet":
            self._do(self._worker.suspend())
        elif state == "terminate":
            self._inside.tell({"kind": "told", "directive": state})
        elif before == "quiet":
            self._do(self._worker.resume())

    async def _opened(self) -> Office:
        """The store of the program."""
        app = self._app
        while True:
            try:
                await app.schedules.aput()
                return await app.bridge.reach(app.engine())
            except StoreError as error:
                if not error.retryable:
                    raise
                _log.warning("the store cannot be reached yet: %s", error)
                await asyncio.sleep(_OPEN_RETRY_S)

    async def _work(self, worker: Worker) -> None:
        reach = self._app.bridge.reach
        settle()
        running = asyncio.create_task(worker.run())
        beside = [asyncio.create_task(reach(self._tell_status(worker)))]
        if self._app.listening and self._told.server is None:
            # What listens is the user's code too, and has no place in the supervisor.
            beside.append(asyncio.create_task(self._app.alisten()))
        if os.environ.get(SUSPENDED) == "1":
            await worker.suspend()
        self._inside.tell({"kind": "ready"})
        try:
            await running
            if self._ending is not None:
                await reach(_awaited(self._ending))
        except InstanceLost as error:
            _log.warning("%s", error)
            self.exit_code = LOST
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _tell_status(self, worker: Worker) -> None:
        while True:
            status = worker.status()
            jobs = [(one.id, one.type, one.since, one.step) for one in status.running[:100]]
            told = {"kind": "status", "done": status.done, "failed": status.failed}
            counts = {"running": len(status.running), "slots": status.slots}
            counts["worn"] = status.wants_recycling
            self._inside.tell({**told, **counts, "state": status.state, "jobs": jobs})
            await asyncio.sleep(_STATUS_S)

    def _floor(self, what: Callable[[], None]) -> None:
        """Do it in the handlers' loop."""
        with suppress(RuntimeError):  # It is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(what)

    def _answer(self, message: Message) -> None:
        """That this comes says that the handlers' loop turns."""
        self._inside.tell({"kind": "well", "nonce": message.get("nonce")})

    # --- what it is told, in the loop of the bridge ---------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self._begin(work)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _terminated(self, number: int) -> None:
        """A signal. The supervisor says on the channel how long there is; others say nothing."""
        if self._ending is None:
            self.ended_by = number
            self._stop(_GRACE_S)

    def _stop(self, grace_s: float) -> None:
        if self._ending is not None:
            self._do(self._hasten(grace_s))
            return
        self._ending = self._begin(self._leave(grace_s))

    async def _leave(self, grace_s: float) -> None:
        if self._worker is None:
            # It has not begun, so there is nothing to finish.
            self._quit(0)
            return
        left = await self._worker.stop(grace_s * _SHARE, min(STOP_S, grace_s * _LAST))
        if left:
            _log.warning("%d handlers could not be stopped and end with this process", len(left))
            self._quit(self.exit_code)

    async def _hasten(self, grace_s: float) -> None:
        if self._worker is not None:
            await self._worker.hasten(grace_s * _SHARE, min(STOP_S, grace_s * _LAST))

    async def _suspend(self, message: Message) -> None:
        if self._worker is not None:
            await self._worker.suspend()
        self._inside.tell({"kind": "quiet", "nonce": message.get("nonce")})

    async def _resume(self, message: Message) -> None:
        if self._worker is not None:
            await self._worker.resume()
        self._inside.tell({"kind": "awake", "nonce": message.get("nonce")})

    async def _lapse(self) -> None:
        """Nobody may run a job whose lease cannot be renewed: stop them all, then go."""
        if self._worker is not None:
            await self._worker.lapse()
        self._quit(LOST)

    def _cancel(self, message: Message) -> None:
        if self._worker is not None:
            self._worker.cancel(str(message["job"]))

    def _quit(self, code: int) -> None:
        """End now, whatever threads still do."""
        for stream in (sys.stdout, sys.stderr):
            # A handler may have put anything there, nothing included.
            with suppress(Exception):
                stream.flush()
        os._exit(code)


def _unproven() -> None:
    """Nobody says any more that our jobs are ours, not even that they are not."""
    _log.error("the supervisor does not renew this worker any more; it ends with all its jobs")
    end_session()


async def _own_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def _awaited(task: asyncio.Task[Any]) -> None:
    await asyncio.shield(task)


def _run(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    """Run it to its end. What a handler has left in the loop may stop that, but not its worker.

    A task or a callback of its own that calls `sys.exit()`, or `loop.stop()`, is not the fault of
    all the other jobs in here.
    """
    task = loop.create_task(work)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt, RuntimeError) as error:
            is_interrupted = signal.getsignal(signal.SIGINT) is signal.default_int_handler
            if task.done() or loop.is_closed() or is_interrupted:
                raise
            _log.error("a handler has stopped the loop of its worker, which goes on: %r", error)


def main() -> int:
    """Join, import, work."""
    inside = Inside.join()
    text = os.environ.pop(TOLD, None)
    instance = os.environ.get(INSTANCE)
    if inside is None or text is None or instance is None:
        sys.stderr.write("This is started by `detent worker`, not by hand.\n")
        return 2
    is_json, plain = bool(os.environ.get(JSON_LOGS)), "%(levelname)s %(name)s: %(message)s"
    log_to_stderr(as_json=is_json, component="worker", plain=plain)
    if not os.environ.get(LOG_LEVEL):
        # A line for every job is written only where somebody asks for it.
        JOBS_LOG.setLevel(logging.WARNING)
    for handler in logging.root.handlers:
        # Ours alone, by now. What handlers log comes here too, for whoever collects lines.
        handler.setFormatter(Masking(handler.formatter or logging.Formatter(plain)))
    told, home = msgspec.json.decode(text, type=Told), working_folder()
    sweep_rarely(told.settings.slots)
    try:
        app = load(told.reference)
    except AppError as error:
        sys.stderr.write(f"Error: {error.message.rstrip()} [{error.code}]\n")
        # Not for good: whoever writes the program anew may be in the middle of that.
        return _UNREAD
    app.move_to(told.url)
    app.bridge.new_loop = new_loop
    if told.server is not None:
        # For this process and those of its pool: there is nothing to open.
        os.environ[REMOTE] = told.server.shown
    child: Child | None = None

    async def serve() -> None:
        nonlocal child
        child = Child(app, told, inside, instance, home)
        await child.run()

    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            _run(runner.get_loop(), serve())
    except DetentError as error:
        sys.stderr.write(f"Error: {error.message} [{error.code}]\n")
        return 1
    app.close()
    inside.leave()
    if child is not None and child.ended_by is not None:
        # It dies of the signal that ended it, so that whoever looks sees that.
        signal.signal(child.ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), child.ended_by)
    return 0 if child is None else child.exit_code


if __name__ == "__main__":
    sys.exit(main())
