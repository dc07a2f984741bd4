"""Syncs and writes that fail, and deaths in the middle of them: nothing acknowledged is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.sqlite.processes import faults_of, rest_of, start, states, url_of

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")
SYNCS, WRITES = "fdatasync,fsync", "pwrite64"


def inject(
    path: Path, calls: str, what: str, when: int, does: str = "insist"
) -> list[dict[str, Any]]:
    """What a process said whose n-th such call did not end well."""
    assert STRACE is not None
    quiet = ["-qq", "-o", "/dev/null", "-e", f"trace={calls}"]
    fault = ["-e", f"inject={calls}:{what}:when={when}"]
    return rest_of(start(does, url_of(path), "p", under=[STRACE, "-f", *quiet, *fault]))


def check(path: Path, spoken: list[dict[str, Any]], *, are_pairs: bool = True) -> None:
    pushed = {job for line in spoken for job in line.get("pushed", [])}
    found = states(path)
    assert pushed <= set(found), "acknowledged, then gone"
    assert not are_pairs or len(found) % 2 == 0, "half a unit was committed"
    assert faults_of(path) == []


@pytest.mark.parametrize(
    ("calls", "when", "does"),
    [
        *((SYNCS, when, "insist") for when in (3, 12)),
        *((WRITES, when, "insist") for when in (3, 150)),
        (SYNCS, 12, "insist_alone"),
        (WRITES, 351, "insist_alone"),
    ],
)
def test_after_one_failed_call_nothing_is_acknowledged_any_more(
    tmp_path: Path, calls: str, when: int, does: str
) -> None:
    path = tmp_path / "detent.db"
    spoken = inject(path, calls, "error=EIO", when, does)
    check(path, spoken, are_pairs=does == "insist")
    kinds = [next(iter(line)) for line in spoken]
    # Once it was refused it stays so: a later sync that works proves nothing.
    assert kinds == sorted(kinds), spoken
    assert kinds[-1] == "refused", "the fault was never reached"
    assert {line["refused"] for line in spoken if "refused" in line} == {"store_broken"}


def test_a_file_that_cannot_be_written_is_not_opened_and_can_be_opened_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "detent.db"
    assert inject(path, WRITES, "error=EIO", 30) == [{"unopened": "store_unavailable"}]
    check(path, [])


@pytest.mark.slow
@pytest.mark.parametrize("calls", [SYNCS, WRITES])
@pytest.mark.parametrize("what", ["error=EIO", "error=ENOSPC", "signal=KILL"])
def test_nothing_is_lost_wherever_it_happens(tmp_path: Path, calls: str, what: str) -> None:
    for when in range(1, 42, 4):
        path = tmp_path / f"detent-{when}.db"
        check(path, inject(path, calls, what, when))
