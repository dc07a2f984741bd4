"""Power fails at every moment: what was acknowledged is found when it returns, and nothing by half.

The store runs on the real file system and strace writes down what it asks of it: every write, every
sync, every word of acknowledgement. From that the disk is rebuilt as it may be found after a power
failure between any two calls: without all that was not synced, with a first part of it, with any
part of it, with writes torn between sectors. A VFS that forgets (apsw) shows the same promise of
SQLite's own code. This shows it of the process that is shipped, with the sqlite3 of this Python and
its own settings, and needs no further dependency. What neither shows is a disk that says it has
synced and has not, or forgets that a file was made.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.sqlite.power import CALLS, Call, Disk, calls
from tests.sqlite.processes import ended, faults_of, start, url_of
from tests.sqlite.witness import Witness

STRACE = shutil.which("strace")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "detent.db"


@pytest.fixture
def traced(tmp_path: Path, path: Path) -> list[Call]:
    """All calls of a process that did a bit of everything."""
    if STRACE is None:
        pytest.skip("strace is not installed")
    trace = tmp_path / "trace"
    how = ["-f", "-y", "-qq", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", str(trace)]
    ended([start(url_of(path), under=[STRACE, *how], module="tests.sqlite.toil")])
    with trace.open() as lines:
        return list(calls(lines))


def moments(traced: list[Call], witness: Witness) -> Iterator[tuple[Disk, Call]]:
    """The disk after every call, and the call; what it acknowledged is known by then."""
    disk = Disk()
    for call in traced:
        said = disk.see(call)
        if said is not None:
            witness.hear(said)
        yield disk, call


def fail(disk: Disk, path: Path, witness: Witness, chance: Random | None) -> None:
    """Let the power fail, and look at what is left."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        found = disk.fail(path, Path(folder), chance)
        witness.check(found)
        assert faults_of(found) == []


def test_power_may_fail_after_any_sync_and_all_else_be_lost(traced: list[Call], path: Path) -> None:
    witness = Witness()
    for disk, call in moments(traced, witness):
        if call.name != "pwrite64":
            fail(disk, path, witness, None)
    assert witness.kinds.total() > 16
    assert all(witness.kinds[one] for one in ("pushed", "bore", "flowed", "completed", "pruned"))


@pytest.mark.parametrize("seed", range(2))
def test_power_may_fail_at_any_call(traced: list[Call], path: Path, seed: int) -> None:
    witness, chance, failures = Witness(), Random(seed), 0
    for disk, _ in moments(traced, witness):
        if chance.random() < 0.08:
            fail(disk, path, witness, chance)
            failures += 1
    assert failures > 20


@pytest.mark.slow
def test_power_may_fail_at_every_third_call(traced: list[Call], path: Path) -> None:
    witness, chance = Witness(), Random(10)
    for number, (disk, _) in enumerate(moments(traced, witness)):
        if number % 3 == 0:
            fail(disk, path, witness, chance)


def test_a_disk_forgets_what_was_not_synced(tmp_path: Path) -> None:
    disk = Disk()
    lines = (
        '7 pwrite64(3<\\x2f\\x61>, "\\x41\\x42", 2, 0) = 2',
        "7 fdatasync(3<\\x2f\\x61>) = 0",
        '7 pwrite64(3<\\x2f\\x61>, "\\x43", 1, 4 <unfinished ...>',
        "8 fdatasync(4<\\x2f\\x62>)    = 0",
        "7 <... pwrite64 resumed>) = 1",
    )
    for call in calls(lines):
        disk.see(call)
    assert disk.fail(Path("/a"), tmp_path).read_bytes() == b"AB"
