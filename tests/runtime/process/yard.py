"""Children for the tests, and ways to wait for what they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import detent
from detent.host import state_of
from detent.runtime.process.body import ProcessBody
from detent.runtime.process.keeper import Keeper
from detent.runtime.process.launching import Program
from detent.runtime.supervisor.body import Handover

ROOT = Path(__file__).parents[3]
SRC = str(Path(detent.__file__).parent)
HANDOVER = Handover(instance="i-1", slot="slot", resume_id="r-1")
SECONDS = 20.0

LIGHT = f"""
import sys, types
# The package itself is not imported: the child's half has to do without the rest of it.
package = types.ModuleType("detent"); package.__path__ = [{SRC!r}]; sys.modules["detent"] = package
import asyncio, os, signal, subprocess, threading, time
from detent.runtime.process.inside import Inside
"""

WORKER = (
    LIGHT
    + """
async def main():
    inside = Inside.join()
    told, signalled = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    answer = lambda kind: lambda message: inside.tell({"kind": kind, "nonce": message["nonce"]})
    inside.hear(
        {
            "suspend": answer("quiet"),
            "resume": answer("awake"),
            "stop": lambda message: (print("grace", message["grace_s"], flush=True), told.set()),
            "hasten": lambda message: print("hasten", message["grace_s"], flush=True),
        },
        loop,
    )
    loop.add_signal_handler(signal.SIGTERM, signalled.set)
    inside.tell({"kind": "status", "done": 7})
    inside.tell({"kind": "ready"})
    await told.wait()
    await signalled.wait()

asyncio.run(main())
"""
)
"""A child that joins its channel and does what it is told; to stop, by word and by signal."""


def child(*command: str, **more: Any) -> subprocess.Popen[str]:
    """A process of the test's own."""
    return subprocess.Popen(command, text=True, **more)  # noqa: S603 (a constant of the test)


def say(code: str) -> list[str]:
    """The lines that a piece of code prints, run in a process of its own beside the tests."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(  # noqa: S603 (a constant of the test)
        command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def python(code: str) -> tuple[str, ...]:
    """The command that runs a piece of code."""
    return (sys.executable, "-c", code)


def program(code: str, **more: Any) -> Program:
    """A program that runs a piece of code."""
    return Program(command=python(code), **more)


async def started(keeper: Keeper, program: Program) -> ProcessBody:
    """A body whose program runs."""
    body = ProcessBody(program, keeper=keeper)
    await body.spawn(HANDOVER)
    return body


def is_gone(pid: int) -> bool:
    """Whether no living process has that number."""
    return state_of(pid) in (None, "Z", "X")


def commands(marker: str) -> list[Path]:
    """The processes whose command line contains a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in path.read_bytes():
                found.append(path)
        except OSError:
            continue
    return found
