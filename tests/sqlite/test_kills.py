"""Processes that do all that a store can are killed in a row: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sqlite.processes import Child, faults_of, rest_of, said, start, url_of
from tests.sqlite.witness import Witness


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


def campaign(folder: Path, nursery: Child, seed: int, files: int, kills: int) -> Counter[str]:
    """Kill so many on each of some files, and look at the file after every single kill."""
    chance, kinds = random.Random(seed), Counter[str]()
    for number in range(files):
        path, witness = folder / f"detent-{number}.db", Witness()
        for kill in range(kills):
            words = chance.choice((0, 2, chance.randint(3, 40)))
            killed(nursery, url_of(path), f"k{kill}", words, witness)
            if path.exists():
                witness.check(path)
                assert faults_of(path) == []
        kinds += witness.kinds
    return kinds


def test_nothing_acknowledged_is_lost_when_writers_are_killed(
    tmp_path: Path, nursery: Child
) -> None:
    kinds = campaign(tmp_path, nursery, seed=1, files=6, kills=12)
    assert kinds["died"] == 72
    wanted = ("pushed", "bore", "flowed", "completed", "pruned", "counted")
    assert all(kinds[one] for one in wanted), f"something was never done: {kinds}"


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_in_a_long_row_of_kills(
    tmp_path: Path, nursery: Child
) -> None:
    assert campaign(tmp_path, nursery, seed=2, files=1, kills=40)["died"] == 40
