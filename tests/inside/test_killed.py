"""Whoever is killed between enqueue and commit has done nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from detent.stores.api import Unique
from tests.inside.yard import Yard

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
async def test_a_process_that_is_killed_before_its_commit_leaves_nothing(yard: Yard) -> None:
    world = yard.world
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.inside.child", yard.way, yard.url),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"Committed()\n"
    child.kill()
    await child.communicate()
    # The key is free as soon as the database has noticed.
    job = await world.push(id="killed", unique=Unique("f", ("available",)))
    assert yard.rows() == (0, 1)
    assert await world.claim_ids() == [job.id]
    assert [one.event.name for one in await world.store.feed()] == ["enqueue", "claim"]
