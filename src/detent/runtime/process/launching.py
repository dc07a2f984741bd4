"""Starting one program: what it is told, and whether it became what it should."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from concurrent.futures import Future
from typing import Final

import msgspec

from detent.errors import ProcessError
from detent.host import kill_session
from detent.runtime.process.faults import spawn_fault
from detent.runtime.process.keeper import Keeper, Launch, Launched
from detent.runtime.process.wiring import Wiring
from detent.runtime.supervisor.body import Handover

_HANDOVER: Final = "LIFECYCLE_"
_FAULT_BYTES: Final = 65536


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and how it is treated.

    `min_uptime_s` is how long it has to live to count as ready; `None` if only its own word counts.
    With `freezes` a suspend stops the whole session in its tracks, without asking it.
    """

    command: tuple[str, ...]
    environment: dict[str, str] = {}
    cwd: str | None = None
    stop_signal: int = signal.SIGTERM
    min_uptime_s: float | None = 1.0
    suspendable: bool = True
    freezes: bool = False
    memory_bytes: int | None = None
    nice: int = 0


def wired(program: Program) -> Wiring:
    """All pipes for one child, or the coded reason why there are none."""
    try:
        return Wiring()
    except OSError as error:
        raise spawn_fault(error.errno, str(error), program.command) from error


async def launch(program: Program, handover: Handover, wiring: Wiring, by: Keeper) -> Launched:
    """Have it started; if nobody waits for it any more, it is ended again."""
    future = by.launch(_plan(program, handover, wiring))
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        if not future.cancel():
            wiring.outlast(future)
            future.add_done_callback(lambda late: _drop(late, by))
        raise


async def passed(gate: socket.socket) -> tuple[int, str] | None:
    """Wait until the launcher has become the command: nothing, or number and text of the error."""
    with gate, contextlib.suppress(ConnectionResetError):
        said = await asyncio.get_running_loop().sock_recv(gate, _FAULT_BYTES)
        if said:
            number, why = said.decode("utf-8", "replace").split(" ", 1)
            return int(number), why
    return None


def _plan(program: Program, handover: Handover, wiring: Wiring) -> Launch:
    # What our own supervisor told us about ourselves is not true of our children.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_HANDOVER)}
    told = {**handover.environment(), **wiring.environment()}
    return Launch(
        command=program.command,
        environment={**inherited, **program.environment, **told},
        files=wiring.files,
        output=wiring.output,
        cwd=program.cwd,
        nice=program.nice,
        memory_bytes=program.memory_bytes,
    )


def _drop(future: Future[Launched], by: Keeper) -> None:
    with contextlib.suppress(ProcessError):
        launched = future.result()
        launched.gate.close()
        kill_session(launched.leader.pid, launched.leader.process_at)
        by.forget(launched.leader)
