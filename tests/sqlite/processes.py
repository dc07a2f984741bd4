"""Starting child processes, and asking a file afterwards whether all is well."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from detent import stores
from detent.engine.verify import Verification

ROOT = Path(__file__).resolve().parents[2]
Child: TypeAlias = subprocess.Popen[str]


def url_of(path: Path) -> str:
    return f"sqlite://{path}"


def start(*args: str, under: Sequence[str] = (), module: str = "tests.sqlite.child") -> Child:
    """A child that has begun, under another program if one is named; it speaks in lines."""
    return subprocess.Popen(  # noqa: S603 - ourselves
        [*under, sys.executable, "-m", module, *args],
        cwd=ROOT,
        env=_unmeasured(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _unmeasured() -> dict[str, str]:
    """Whoever is killed or denied the disk leaves no coverage behind, only broken files of it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


def said(child: Child) -> dict[str, Any]:
    """The next thing that the child says."""
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, "the child ended without a word"
    spoken: dict[str, Any] = json.loads(line)
    return spoken


def go(children: list[Child]) -> None:
    """Let all of them begin, once all of them are ready."""
    for child in children:
        assert said(child) == {"ready": True}
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()


def rest_of(child: Child) -> list[dict[str, Any]]:
    """Everything it still says; a line that death has cut off was never said.

    Not by `communicate`: that reads past what `said` has already drawn into the buffer, and would
    begin in the middle of a line.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    with suppress(BrokenPipeError):
        child.stdin.close()
    with child.stdout as stream:
        output = stream.read()
    child.wait()
    return [json.loads(line) for line in output.splitlines(keepends=True) if line.endswith("\n")]


def ended(children: list[Child]) -> list[list[dict[str, Any]]]:
    """What each of them said until its good end."""
    spoken = [rest_of(child) for child in children]
    assert [child.returncode for child in children] == [0] * len(children)
    return spoken


def faults_of(path: Path) -> list[str]:
    """Everything that is wrong with a store; an empty list is the only pass."""
    with sqlite3.connect(path) as connection:
        found = [str(row) for row in connection.execute("PRAGMA integrity_check")]
        found += [str(row) for row in connection.execute("PRAGMA foreign_key_check")]
    connection.close()
    found.remove("('ok',)")
    return found + asyncio.run(_faults_of(path))


async def _faults_of(path: Path) -> list[str]:
    async with stores.open(url_of(path)) as store:
        found = [one async for one in Verification(store).findings()]
    return [f"{one.where}: {one.why}" for one in found]


async def _states(path: Path) -> dict[str, str]:
    async with stores.open(url_of(path)) as store:
        keys = await store.keys(limit=100_000)
        found = await store.get(keys)
        return {one.job.id: one.job.state.value for one in found if one is not None}


def states(path: Path) -> dict[str, str]:
    """The state of every stored job, by its id."""
    return asyncio.run(_states(path))
