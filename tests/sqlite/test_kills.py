"""Processes that do all that a store can are killed in a row: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from detent import stores
from detent.lifecycle.job import Job
from detent.stores.api import Store
from detent.stores.select import Page
from tests.sqlite.processes import Child, faults_of, rest_of, said, start, url_of


class Witness:
    """What was acknowledged, told to us and not to the store."""

    def __init__(self) -> None:
        self.stays: set[str] = set()
        self.completed: set[str] = set()
        self.counted: dict[str, int] = {}
        self.kinds: Counter[str] = Counter()

    def hear(self, line: dict[str, Any]) -> None:
        """One line of somebody who may be dead by now."""
        self.stays |= {*line.get("pushed", []), *line.get("flowed", [])}
        self.completed |= set(line.get("completed", []))
        self.counted |= line.get("counted", {})
        self.kinds.update(name for name, value in line.items() if value)


@pytest.fixture
def nursery() -> Iterator[Child]:
    """Makes processes to kill."""
    child = start(module="tests.sqlite.toil")
    yield child
    rest_of(child)


def killed(nursery: Child, url: str, name: str, words: int, witness: Witness) -> None:
    """Let one live for so many words, then kill it, whatever it is doing."""
    assert nursery.stdin is not None
    nursery.stdin.write(f"{url} {name}\n")
    nursery.stdin.flush()
    pid, line = _after(nursery, words, witness)
    if "died" not in line:
        os.kill(pid, signal.SIGKILL)
    while "died" not in line:
        line = said(nursery)
        witness.hear(line)
    assert line["died"] == -signal.SIGKILL, "it died by itself"


def _after(nursery: Child, words: int, witness: Witness) -> tuple[int, dict[str, Any]]:
    """Who was born, and the last of so many words; fewer, if it has died already."""
    pid, line = 0, dict[str, Any]()
    while "died" not in line and (words >= 0 or not pid):
        line = said(nursery)
        witness.hear(line)
        pid, words = line.get("born", pid), words - 1
    return pid, line


async def jobs_in(store: Store) -> dict[str, Job]:
    keys = [key async for key in store.keys()]  # noqa: SIM118 - no dictionary
    return {one.job.id: one.job for one in await store.get(keys) if one is not None}


async def check(url: str, witness: Witness) -> None:
    """All that was acknowledged is there, and nothing by half."""
    async with stores.open(url) as store:
        jobs = await jobs_in(store)
        assert witness.stays <= jobs.keys(), "acknowledged, then gone"
        done = witness.completed & witness.stays
        assert {jobs[one].state for one in done} <= {"completed"}
        pairs = Counter(x.id[:-2] for x in jobs.values() if x.queue == "default")
        assert set(pairs.values()) <= {2}, "half a pair was committed"
        flows = {one.id for one in await store.find_workflows(page=Page(10_000))}
        members = Counter(x.workflow for x in jobs.values() if x.workflow)
        assert members == dict.fromkeys(flows, 4), "a workflow lacks jobs"
        assert {one.id for one in await store.records("flow")} == flows, "or its small record"
        counts = {one.id: one.version for one in await store.records("count")}
        assert all(counts[name] >= count for name, count in witness.counted.items())


def campaign(folder: Path, nursery: Child, seed: int, files: int, kills: int) -> Counter[str]:
    """Kill so many on each of some files, and look at the file after every single kill."""
    chance, kinds = random.Random(seed), Counter[str]()
    for number in range(files):
        path, witness = folder / f"detent-{number}.db", Witness()
        for kill in range(kills):
            words = chance.choice((0, 2, chance.randint(3, 40)))
            killed(nursery, url_of(path), f"k{kill}", words, witness)
            if path.exists():
                asyncio.run(check(url_of(path), witness))
                assert faults_of(path) == []
        kinds += witness.kinds
    return kinds


def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    tmp_path: Path, nursery: Child
) -> None:
    kinds = campaign(tmp_path, nursery, seed=1, files=6, kills=12)
    assert kinds["died"] == 72
    wanted = ("pushed", "flowed", "completed", "pruned", "counted")
    assert all(kinds[one] for one in wanted), f"something was never done: {kinds}"


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_a_long_row_of_kills(
    tmp_path: Path, nursery: Child
) -> None:
    assert campaign(tmp_path, nursery, seed=2, files=5, kills=40)["died"] == 200
