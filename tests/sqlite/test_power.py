"""Power fails at every acknowledgement: what was acknowledged is found when it returns."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random

import pytest

from tests.sqlite.power import CALLS, Disk, calls
from tests.sqlite.processes import ended, faults_of, start, states, url_of

STRACE = shutil.which("strace")


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_power_may_fail_at_any_acknowledgement(tmp_path: Path, seed: int | None) -> None:
    path, trace = tmp_path / "detent.db", tmp_path / "trace"
    assert STRACE is not None
    how = ["-f", "-y", "-qq", "-xx", "-s", "1000000", "-e", f"trace={CALLS}", "-o", str(trace)]
    ended([start("insist", url_of(path), "p", under=[STRACE, *how])])
    disk, acknowledged, failures = Disk(), set[str](), 0
    chance = None if seed is None else Random(seed)
    with trace.open() as lines:
        for call in calls(lines):
            said = disk.see(call)
            if said is not None:
                acknowledged |= set(said["pushed"])
                found = disk.fail(path, Path(tempfile.mkdtemp(dir=tmp_path)), chance)
                assert acknowledged <= set(states(found)), "acknowledged, then gone"
                assert faults_of(found) == []
                failures += 1
    assert failures == 20


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
