"""A worker that is a container, run by `docker` or `podman`.

A container is a child of its runtime and not of ours: it survives a `kill -9` of the supervisor.
So each carries the resume id of its slot, and the next instance of the slot removes it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import time
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from detent.complaining import Complaint
from detent.errors import ContainerError, ProcessError
from detent.host import start_time
from detent.lifecycle.worker import Ending, Exit
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.launching import Program
from detent.runtime.process.rotation import Files
from detent.runtime.process.runtime import Network, Runtime, State
from detent.runtime.supervisor.body import Born, Handover, Usage
from detent.runtime.supervisor.metrics import PREFIX, Metrics, harmless
from detent.runtime.supervisor.snapshot import ADDRESS, IMAGE, PORTS

_log = logging.getLogger("detent.supervisor")
_POLL_S: Final = 0.1
_INSPECT_S: Final = 1.0
_RUN_S: Final = 600.0
"""An image may have to be fetched."""
_SPARE_S: Final = 60
"""The runtime forces by itself, so much later than we do that it never comes to that."""
_LOG_S: Final = 5.0
"""The last lines come soon after the end, or not at all."""
_LABEL: Final = "detent.resume-id"
_INSTANCE: Final = "detent.instance-id"
_KILLED: Final = 128 + signal.SIGKILL
WATCHED: Final = set[str]()
"""The containers that somebody here answers for. One of a slot is there beside its replacement."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """What to run; `options` go to the runtime's `run` as they are."""

    image: str
    command: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    options: tuple[str, ...] = ()
    min_uptime_s: float = 1.0


class ContainerBody:
    """One container, from `run` to `rm`."""

    kind: Final = "container"
    suspendable: Final = True

    def __init__(
        self,
        image: Image,
        *,
        runtime: Runtime | None = None,
        files: Files | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.state = State()
        """The last answer of the runtime."""
        self._image = image
        self._runtime = runtime or Runtime()
        self._files = files
        self._metrics = harmless(metrics)
        self._id = ""
        self._own = ""
        """The label that no other instance has, from when the runtime was asked to run it."""
        self._end: asyncio.Future[Exit] | None = None
        self._log: ProcessBody | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._network = Network()
        self._is_forced = False
        self._is_frozen = False
        self._born_at = 0.0

    async def spawn(self, handover: Handover) -> Born | None:
        """Run it; the runtime's word counts that it exists."""
        self._end = asyncio.get_running_loop().create_future()
        try:
            await self._clear(f"{_LABEL}={handover.resume_id}")
            self._own = f"{_INSTANCE}={handover.instance}"
            self._id = await self._run(handover)
        except ProcessError as error:
            await self._sweep()
            self._count("failed")
            self._end.set_result(Exit(Ending.UNSPAWNED, code=error.code))
            raise
        WATCHED.add(self._id)
        self._born_at = time.monotonic()
        self._count("started")
        await self._follow(handover)
        self._spawned(self._watch())
        with contextlib.suppress(ProcessError):
            self.state = await self._runtime.inspect(self._id) or self.state
            self._network = await self._runtime.network(self._id)
        at = start_time(self.state.pid) if self.state.pid else None
        return None if at is None else Born(self.state.pid, at)

    async def ready(self) -> None:
        """Return when its own check says so, or when it has lived long enough without one."""
        until = self._born_at + self._image.min_uptime_s
        while not self._is_ready(until):  # noqa: ASYNC110 (a runtime can only be asked)
            await asyncio.sleep(_POLL_S)

    async def ended(self) -> Exit:
        """How it ended."""
        return await asyncio.shield(self._future())

    async def ask(self, grace_s: float) -> None:
        """Have it stopped by the signal of its image, which it does not hear while it is frozen."""
        if self._is_there():
            await self._thaw()
            spare = str(math.ceil(grace_s) + _SPARE_S)
            self._spawned(self._try("stop", "--time", spare, limit_s=float(spare) + _SPARE_S))

    async def hasten(self, grace_s: float) -> None:
        """There is no way to say it; the force comes earlier, that is all."""

    async def dump(self) -> str:
        """Nobody can ask a container for its stacks."""
        return ""

    async def force(self) -> None:
        """Kill it; also what the runtime may have begun without an answer.

        Some do not kill what is frozen: then the next try does.
        """
        if self._is_there():
            self._is_forced = True
            await self._try("kill")
            await self._thaw()
        elif not self._id:
            await self._sweep()

    async def suspend(self) -> None:
        """Freeze it."""
        self._is_frozen = True
        await self._runtime.call("pause", self._id)

    async def resume(self) -> None:
        """Let it go on."""
        if self._is_there():
            await self._runtime.call("unpause", self._id)
            self._is_frozen = False

    async def probe(self) -> bool:
        """Whether it runs, and its own check has nothing against it."""
        if not self._is_there():
            return False
        try:
            found = await self._runtime.inspect(self._id, limit_s=_INSPECT_S)
        except ProcessError:
            return False
        return found is not None and found.is_well

    def usage(self) -> Usage | None:
        """The runtime needs seconds to say, so it is not asked."""
        return None

    def described(self) -> tuple[tuple[str, str], ...]:
        """Its image, and where it could be reached when it began."""
        told = {ADDRESS: self._network.address, PORTS: self._network.told_ports}
        return ((IMAGE, self._image.image), *((key, text) for key, text in told.items() if text))

    def tail(self, lines: int) -> list[str]:
        """The last lines it wrote."""
        return [] if self._log is None else self._log.tail(lines)

    # --- the beginning ------------------------------------------------------------------------

    async def _clear(self, label: str) -> None:
        """Remove what nobody answers for any more."""
        choice = ("--filter", f"label={label}")
        said = await self._runtime.call("ps", "--all", "--quiet", "--no-trunc", *choice)
        left = [one for one in said.split() if one not in WATCHED]
        if left:
            await self._runtime.call("rm", "--force", *left)

    async def _sweep(self) -> None:
        """A runtime that was asked may have begun, and then nobody knows the container's id."""
        if self._own:
            with contextlib.suppress(ProcessError):
                await self._clear(self._own)

    async def _run(self, handover: Handover) -> str:
        env = {**self._image.environment, **handover.environment()}
        # Only the names: what stands on a command line can be read by everybody.
        names = [word for name in env for word in ("--env", name)]
        labels = ("--label", f"{_LABEL}={handover.resume_id}", "--label", self._own)
        words = (*labels, *names, *self._image.options)
        return await self._runtime.run(
            *words, self._image.image, *self._image.command, env=env, limit_s=_RUN_S
        )

    async def _follow(self, handover: Handover) -> None:
        command = (*self._runtime.command, "logs", "--follow", self._id)
        log = ProcessBody(Program(command=command), files=self._files)
        with contextlib.suppress(ProcessError):
            await log.spawn(handover)
            self._log = log

    def _is_ready(self, until: float) -> bool:
        if self.state.health is not None:
            return self.state.healthy is True
        return self.state.status == "running" and time.monotonic() >= until

    def _count(self, what: str) -> None:
        self._metrics.count(f"{PREFIX}container_{what}_total", {"image": self._image.image})

    # --- the end --------------------------------------------------------------------------------

    async def _watch(self) -> None:
        found: State | None = self.state
        complaint = Complaint(_log, f"nothing is known of container {self._id[:12]}")
        while found is not None and not found.is_over:
            await asyncio.sleep(_POLL_S)
            try:
                found = await self._runtime.inspect(self._id)
                self.state = found or self.state
                complaint.end()
            except ProcessError as error:
                # A runtime that does not answer, or is not there, says nothing about the container.
                complaint.say(str(error))
        await self._finish_log()
        await self._try("rm", "--force")
        WATCHED.discard(self._id)
        self._count("ended")
        self._future().set_result(self._exit(found))

    async def _finish_log(self) -> None:
        if self._log is not None:
            try:
                await asyncio.wait_for(self._log.ended(), _LOG_S)
            except TimeoutError:
                await self._log.force()
                await self._log.ended()

    def _exit(self, found: State | None) -> Exit:
        if found is None:
            return Exit(Ending.RAISED, code=ContainerError.code)
        if found.exit_code == _KILLED and (self._is_forced or found.oom_killed):
            return Exit.of_process(
                -signal.SIGKILL, is_forced=self._is_forced, is_oom=not self._is_forced
            )
        return Exit.of_process(found.exit_code)

    async def _thaw(self) -> None:
        if self._is_frozen:
            await self._try("unpause")

    async def _try(self, verb: str, *words: str, limit_s: float = 30.0) -> None:
        """What cannot be done is not done: the watch sees what has become of it."""
        with contextlib.suppress(ProcessError):
            await self._runtime.call(verb, *words, self._id, limit_s=limit_s)

    def _spawned(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _is_there(self) -> bool:
        return bool(self._id) and not self._future().done()

    def _future(self) -> asyncio.Future[Exit]:
        if self._end is None:
            raise ProcessError("It was not started yet: call spawn first")
        return self._end
