"""Supervise functions, processes and containers inside your own asyncio program.

    async def tick(worker: WorkerContext) -> None:
        while True:
            print("tick")
            await asyncio.sleep(1)

    supervisor = Supervisor(
        Spec("tick", Function(tick)),
        Spec("web", Process("python", "-m", "http.server"), grace=5),
    )
    asyncio.run(supervisor.run())

A `Spec` gives a worker a name and says when it is started again. A `Supervisor` starts its workers
in order, restarts them, and stops them in reverse. It can be the worker of another supervisor; then
its workers are addressed by path, such as "branch/web". Nothing here needs a store or a job.
"""

from __future__ import annotations

import inspect
import math
import signal
import tempfile
from asyncio import Event
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from detent.errors import AlreadyStarted, NotStarted, TooManyRestarts
from detent.lifecycle.worker import Ending, WorkerState
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.containers import ContainerBody, Image
from detent.runtime.process.launching import Program
from detent.runtime.process.rotation import Files
from detent.runtime.process.runtime import Runtime
from detent.runtime.remains import SessionRemains
from detent.runtime.supervisor import spec as slots
from detent.runtime.supervisor.backoff import Backoff as RestartBackoff
from detent.runtime.supervisor.backoff import need
from detent.runtime.supervisor.body import Body
from detent.runtime.supervisor.breaker import Breaker, Circuit
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.function import FunctionBody, WorkerContext, WorkerFunction
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.metrics import Metrics
from detent.runtime.supervisor.nesting import SupervisorBody
from detent.runtime.supervisor.signals import Signals
from detent.runtime.supervisor.snapshot import Snapshot, of_slot
from detent.runtime.supervisor.strategy import Strategy as GroupStrategy
from detent.runtime.supervisor.supervisor import Supervisor as Core
from detent.runtime.supervisor.tree import Tree

__all__ = [
    "Backoff",
    "Container",
    "Function",
    "Probe",
    "Process",
    "Snapshot",
    "Spec",
    "Supervisor",
    "WorkerContext",
]

Restart: TypeAlias = Literal["always", "on_failure", "never"]
Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]


@dataclass(frozen=True)
class Backoff:
    """How long to wait before each restart, in seconds, and how many restarts are too many.

    The wait starts at `initial` and doubles up to `longest`; a worker that ran for a minute starts
    from `initial` again. More than `max_restarts` within `window` seconds open the circuit breaker:
    the worker stays down for `cooldown` seconds and then gets one more try. With `escalate` the
    whole supervisor gives up instead. `max_restarts=None` restarts for ever.
    """

    _: KW_ONLY
    initial: float = 0.5
    longest: float = 30.0
    max_restarts: int | None = 5
    window: float = 60.0
    cooldown: float = 300.0
    escalate: bool = False

    def __post_init__(self) -> None:
        need(self.initial >= 0, "backoff.initial", "must not be negative")
        need(
            self.initial <= self.longest < math.inf, "backoff.longest", "must not be below initial"
        )
        is_count = self.max_restarts is None or self.max_restarts > 0
        need(is_count, "backoff.max_restarts", "must be more than 0, or None")
        need(0 < self.window < math.inf, "backoff.window", "must be more than 0")
        need(0 < self.cooldown < math.inf, "backoff.cooldown", "must be more than 0")

    @property
    def _waits(self) -> RestartBackoff:
        return RestartBackoff(initial_s=self.initial, most_s=self.longest)

    @property
    def _breaker(self) -> Breaker | None:
        if self.max_restarts is None:
            return None
        return Breaker(
            most=self.max_restarts,
            window_s=self.window,
            cool_down_s=self.cooldown,
            escalate=self.escalate,
        )


@dataclass(frozen=True)
class Probe:
    """How often a worker is asked whether it is healthy, in seconds.

    After `failures` bad answers in a row it is shown as unhealthy and logged; with `restart` it is
    restarted too. No answer within `timeout` is a bad answer.
    """

    _: KW_ONLY
    interval: float = 10.0
    timeout: float = 1.0
    failures: int = 3
    restart: bool = False

    def __post_init__(self) -> None:
        need(self.interval > 0, "probe.interval", "must be more than 0")
        need(self.timeout > 0, "probe.timeout", "must be more than 0")
        need(self.failures > 0, "probe.failures", "must be more than 0")

    @property
    def _probe(self) -> slots.Probe:
        return slots.Probe(
            interval_s=self.interval,
            timeout_s=self.timeout,
            failures=self.failures,
            on_sick=slots.OnSick.RESTART if self.restart else slots.OnSick.ALERT,
        )


class Function:
    """A worker that is a Python function with one argument, its `WorkerContext`.

    A coroutine function runs in the event loop, and is cancelled when it must stop. A plain one
    runs in a thread of its own, and must return when `context.stopping` is set: a thread cannot be
    killed.

    With `suspendable` the function calls `context.checkpoint()` (or awaits `acheckpoint()`) between
    two units of work, and is held there while it is suspended. With `wait_ready` it counts as
    started when it calls `context.ready()`. `probe` answers whether it is healthy.
    """

    _kind = "function"

    def __init__(
        self,
        function: WorkerFunction,
        *,
        suspendable: bool = False,
        wait_ready: bool = False,
        probe: Callable[[], bool] | None = None,
    ) -> None:
        need(_takes_one_argument(function), "function", "must take one argument: its context")
        self._function = function
        self._suspendable = suspendable
        self._waits_ready = wait_ready
        self._probe = probe

    def _body(self, files: Files | None, metrics: Metrics) -> Body:  # noqa: ARG002
        return FunctionBody(
            self._function,
            suspendable=self._suspendable,
            says_ready=self._waits_ready,
            probe=self._probe,
        )


class Process:
    """A worker that is a program: `Process("python", "-m", "http.server")`.

    It runs in a session of its own and cannot outlive this process; whatever it has started ends
    with it. It counts as started after `min_uptime` seconds, or when it says so on its channel;
    `min_uptime=None` waits for its word. To stop it, it gets `stop_signal`, and SIGKILL when its
    grace is over. To suspend it, all of its processes are frozen (SIGSTOP); with `freeze=False` it
    is asked on its channel. `env` is added to the environment of this process.
    """

    _kind = "process"

    def __init__(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        min_uptime: float | None = 1.0,
        stop_signal: int = signal.SIGTERM,
        freeze: bool = True,
    ) -> None:
        need(bool(command), "command", "must name a program")
        self._waits_ready = min_uptime is None
        self._program = Program(
            command=command,
            environment=dict(env or {}),
            cwd=None if cwd is None else str(cwd),
            min_uptime_s=min_uptime,
            stop_signal=stop_signal,
            freezes=freeze,
        )

    def _body(self, files: Files | None, metrics: Metrics) -> Body:  # noqa: ARG002
        return ProcessBody(self._program, files=files)


class Container:
    """A worker that is a container: `Container("redis:7", options=["--publish", "6379:6379"])`.

    Experimental. It is run by the command line of `docker`, or by the `runtime` that is named.
    `options` go to its `run` command as they are. It counts as started when the health check of its
    image passes, or without one after `min_uptime` seconds.
    """

    _kind = "container"
    _waits_ready = False

    def __init__(
        self,
        image: str,
        *command: str,
        env: Mapping[str, str] | None = None,
        options: tuple[str, ...] | list[str] = (),
        min_uptime: float = 1.0,
        runtime: str = "docker",
    ) -> None:
        need(bool(image), "image", "must name an image")
        self._runtime = runtime
        self._image = Image(
            image=image,
            command=command,
            environment=dict(env or {}),
            options=tuple(options),
            min_uptime_s=min_uptime,
        )

    def _body(self, files: Files | None, metrics: Metrics) -> Body:
        runtime = Runtime(self._runtime)
        return ContainerBody(self._image, runtime=runtime, files=files, metrics=metrics)


@dataclass(frozen=True)
class Spec:
    """A worker with a name, and how it is started, watched and stopped.

    `restart` says which ends are followed by another start: "always", "on_failure" or "never". A
    worker must be ready within `start_timeout` seconds, and has `grace` seconds to stop before it
    is killed. A process that exits with code 125 is never restarted.
    """

    name: str
    worker: Function | Process | Container | Supervisor
    _: KW_ONLY
    restart: Restart = "always"
    backoff: Backoff = Backoff()
    grace: float = 10.0
    start_timeout: float = 30.0
    probe: Probe | None = None

    def __post_init__(self) -> None:
        is_worker = isinstance(self.worker, Function | Process | Container | Supervisor)
        need(is_worker, "worker", "must be a Function, Process, Container or Supervisor")
        _need_nestable(self)
        policies = get_args(Restart)
        need(self.restart in policies, "restart", f"must be one of {', '.join(policies)}")
        need(self.grace >= 0, "grace", "must not be negative")
        need(self.start_timeout > 0, "start_timeout", "must be more than 0")
        self._slot(Body)  # It refuses values that cannot work, such as a name with a slash.

    def _slot(self, make: Callable[[], Any]) -> slots.Spec:
        return slots.Spec(
            name=self.name,
            make=make,
            kind=self.worker._kind,  # noqa: SLF001 - of this module
            restart=slots.Restart(self.restart),
            backoff=self.backoff._waits,  # noqa: SLF001
            breaker=self.backoff._breaker,  # noqa: SLF001
            stop_grace_s=self.grace,
            init_timeout_s=self.start_timeout,
            needs_ready_signal=self.worker._waits_ready,  # noqa: SLF001
            probe=None if self.probe is None else self.probe._probe,  # noqa: SLF001
        )


class Supervisor:
    """Keeps workers running. Enter it with `async with`, or call `run()` for a whole program.

    Workers are addressed by the name in their spec, or by a path such as "branch/web" below a
    nested supervisor. Methods raise `UnknownSlot` where there is no such worker.

    With "one_for_one" workers are independent: they start and stop side by side. With "one_for_all"
    and "rest_for_one" each starts when the one before it is ready; when one fails, all of them, or
    it and those after it, are restarted together. Then `backoff` counts for the group.

    What happened is kept in a journal in `directory`, with the output of the workers in `logs`
    below it, so that the next supervisor there knows what this one left behind. One supervisor
    uses a directory at a time. Without a directory the journal is temporary, and output is only
    kept in memory.
    """

    _kind = "supervisor"
    _waits_ready = True

    def __init__(
        self,
        *specs: Spec,
        strategy: Strategy = "one_for_one",
        backoff: Backoff | None = None,
        directory: str | Path | None = None,
        shutdown_timeout: float = 60.0,
        metrics: Metrics | None = None,
    ) -> None:
        strategies = get_args(Strategy)
        need(strategy in strategies, "strategy", f"must be one of {', '.join(strategies)}")
        names = [spec.name for spec in specs]
        need(len(set(names)) == len(names), "name", "must differ from worker to worker")
        need(shutdown_timeout > 0, "shutdown_timeout", "must be more than 0")
        backoff = backoff or Backoff()
        self._specs = specs
        self._plan = Plan(
            strategy=GroupStrategy(strategy),
            backoff=backoff._waits,  # noqa: SLF001 - of this module
            breaker=backoff._breaker,  # noqa: SLF001
            shutdown_s=shutdown_timeout,
        )
        self._directory = None if directory is None else Path(directory)
        self._logs = _Logs(None if self._directory is None else self._directory / "logs")
        self._metrics = metrics
        self._core: Core | None = None
        self._resources = ExitStack()

    # --- the whole tree -----------------------------------------------------------------------

    async def __aenter__(self) -> Supervisor:
        """Start all workers; raise `StartFailed` if one does not start, and stop the others."""
        if self._core is not None:
            raise AlreadyStarted("This supervisor was started before. Make another one")
        with ExitStack() as resources:
            directory = self._directory or Path(
                resources.enter_context(tempfile.TemporaryDirectory(prefix="detent-"))
            )
            journal = Journal(directory)
            resources.callback(journal.close)
            tree = Tree(journal, metrics=self._metrics)
            resources.callback(self._logs.close)
            specs = self._slots(tree, self._logs, "")
            self._core = Core(tree, specs, self._plan, remains=SessionRemains())
            await self._core.start()
            self._resources = resources.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def run(self) -> None:
        """Start all workers and wait until SIGINT or SIGTERM; then stop them.

        A second signal kills all workers and ends the process. Raises what `wait` raises.
        """
        with Signals(force=self._kill_all, metrics=self._metrics) as signals:
            if await signals.unless_cancelled(self.__aenter__()):
                try:
                    await signals.unless_cancelled(self.wait())
                finally:
                    await signals.shut_down(self.shutdown())

    async def wait(self) -> None:
        """Return when the supervisor has stopped; raise `TooManyRestarts` if it gave up."""
        core = self._running()
        if (await core.wait()).how is Ending.RAISED:
            open_ = [
                slot.path
                for slot in core.slots.values()
                if slot.pacing.gauge.circuit is Circuit.OPEN
            ]
            raise TooManyRestarts(
                f"The supervisor gave up: {', '.join(open_)} ended too often. The log says why",
                workers=open_,
            )

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Stop all workers in reverse order; what is left after `timeout` seconds is killed."""
        if self._core is not None:
            await self._core.stop(timeout)
            self._resources.close()

    def tree(self) -> Snapshot:
        """The supervisor and all workers below it, as they are now."""
        return self._running().snapshot()

    async def watch(self) -> AsyncIterator[Snapshot]:
        """The tree as it is now, then again after every change, until the supervisor has stopped.

        A slow reader skips what was outdated before it looked.
        """
        core, changed = self._running(), Event()
        forget = core.tree.listen(changed.set)
        try:
            yield core.snapshot()
            while core.phase is not WorkerState.STOPPED:
                await changed.wait()
                changed.clear()
                yield core.snapshot()
        finally:
            forget()

    # --- one worker -----------------------------------------------------------------------------

    def status(self, name: str) -> Snapshot:
        """One worker as it is now; its health is that of the last probe."""
        core, slot = self._running().find(name)
        return of_slot(slot, stopping=core.phase is WorkerState.STOPPING)

    async def check(self, name: str) -> Snapshot:
        """Ask a worker whether it is healthy, and return its status."""
        return await self._running().inspect(name, fresh=True)

    def output(self, name: str, lines: int = 100) -> list[str]:
        """The last lines that a process or container wrote, in its present run."""
        return self._running().tail(name, lines)

    async def start(self, name: str) -> None:
        """Start a worker that is down, or that waits for its next restart, and wait for it."""
        await self._running().start_slot(name)

    async def stop(self, name: str, grace: float | None = None) -> None:
        """Stop a worker, and keep it down until somebody starts it."""
        await self._running().stop_slot(name, grace)

    async def restart(self, name: str, grace: float | None = None) -> None:
        """Stop a worker and start it again at once."""
        await self._running().restart(name, grace)

    async def kill(self, name: str) -> None:
        """Kill a worker; it is started again if its restart policy is "always"."""
        await self._running().kill(name)

    async def suspend(self, name: str, timeout: float = 30.0) -> None:  # noqa: ASYNC109
        """Pause a worker in place; it stays suspended, also after a restart, until `resume`.

        Raises `NotSuspendable`, or `SuspendTimeout` if it did not pause in time and works on.
        """
        await self._running().suspend(name, timeout)

    async def resume(self, name: str) -> None:
        """Let a suspended worker go on."""
        await self._running().resume(name)

    async def add(self, spec: Spec) -> None:
        """Add a worker and wait until it is ready; if it does not start, it is not added."""
        core = self._running()
        await core.add(self._slot(spec, core.tree, self._logs, ""))

    async def remove(self, name: str, grace: float | None = None) -> None:
        """Stop a worker and forget it."""
        await self._running().remove(name, grace)

    # --- how it is made ---------------------------------------------------------------------------

    def _slot(self, spec: Spec, tree: Tree, logs: _Logs, path: str) -> slots.Spec:
        """What the core keeps for a worker; `path` is that of the supervisor it belongs to."""
        worker = spec.worker
        if isinstance(worker, Supervisor):
            return spec._slot(lambda: worker._nested(tree, logs))  # noqa: SLF001 - of this module
        files = logs.of(f"{path}/{spec.name}" if path else spec.name)
        return spec._slot(lambda: worker._body(files, tree.metrics))  # noqa: SLF001

    def _slots(self, tree: Tree, logs: _Logs, path: str) -> list[slots.Spec]:
        return [self._slot(spec, tree, logs, path) for spec in self._specs]

    def _nested(self, tree: Tree, logs: _Logs) -> Body:
        """This supervisor as a worker; each of its runs is a new core in the parent's tree."""
        return SupervisorBody(
            lambda path: Core(tree, self._slots(tree, logs, path), self._plan, path=path)
        )

    async def _kill_all(self) -> None:
        if self._core is not None:
            await self._core.stop(0)

    def _running(self) -> Core:
        if self._core is None:
            raise NotStarted(
                "This supervisor is not running. Enter it with `async with` or call `run()`; if it"
                " is the worker of another supervisor, ask that one, by path"
            )
        return self._core


class _Logs:
    """The log files of all workers of a tree, if it has a directory to keep them in."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._files: dict[str, Files] = {}

    def of(self, path: str) -> Files | None:
        """The files of one worker, which all its runs share."""
        if self._folder is None:
            return None
        return self._files.setdefault(path, Files(self._folder, path))

    def close(self) -> None:
        """Close all of them."""
        for files in self._files.values():
            files.close()


def _need_nestable(spec: Spec) -> None:
    """Refuse a nested supervisor that runs by itself, or that would have a journal of its own."""
    inner = spec.worker
    if isinstance(inner, Supervisor):
        is_bare = inner._directory is None and inner._metrics is None  # noqa: SLF001
        need(is_bare, "directory", "and metrics belong to the outermost supervisor")
        need(inner._core is None, "worker", "must not be a supervisor that runs by itself")  # noqa: SLF001


def _takes_one_argument(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # A builtin that does not tell its arguments.
        return True
    return True
