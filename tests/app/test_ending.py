"""A program that closes nothing just ends: its jobs are stored, and nothing is said about it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from detent import Detent
from tests.postgres.server import databases

PROGRAM = """
import asyncio, sys
from detent import Detent

app = Detent(sys.argv[1])

@app.job(name="add")
async def add(a: int, b: int) -> int:
    return a + b

async def awaited() -> None:
    handle = await add.aenqueue(1, 2)
    async with app.working():
        assert await handle.aresult(timeout=30) == 3
    print(handle.id)

if sys.argv[2] == "awaits":
    asyncio.run(awaited())
else:
    print(add.enqueue(1, 2).id)
"""


@pytest.mark.parametrize("how", ["waits", "awaits"])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_it_ends_without_a_word(store: str, how: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/d.db" if store == "sqlite" else databases().of(tmp_path)
    told = [sys.executable, "-c", PROGRAM, url, how]
    ended = [subprocess.run(told, capture_output=True, timeout=60, check=True) for _ in range(3)]  # noqa: S603
    assert [one.stderr for one in ended] == [b""] * 3
    with Detent(url) as app:
        states = {app.handle(one.stdout.decode().strip()).status().state for one in ended}
    assert states == {"available" if how == "waits" else "completed"}
