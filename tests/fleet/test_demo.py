"""`make run`: the demo tells its story, proves it, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from detent.host import children, is_alive, start_time
from tests.waiting import eventually


def demo(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "detent", "demo", *options],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
def test_the_demo_tells_of_a_crash_and_of_the_recovery(tmp_path: Path) -> None:
    with demo(tmp_path, "--once") as running:
        told, _ = running.communicate(timeout=120)
    assert running.returncode == 0, told
    assert "greet returned 'Hello, world!'" in told
    assert "flaky returned 'sent, at the second attempt'" in told
    assert "it is cancelled" in told
    assert re.search(r"lose +-> retryable +by system: worker \S+ \(pid \d+ on .*signal 9", told)
    assert "report wrote 12 pages, across the crash" in told
    before, _, after = told.partition(" lose ")
    assert (before.count("checkpointed"), after.count("checkpointed")) in ((3, 9), (4, 8), (5, 7))
    assert re.search(r"served at http://[\d.:]+/api/jobs meanwhile", told)
    assert "nothing is wrong" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_ends_cleanly_in_the_middle(tmp_path: Path) -> None:
    with demo(tmp_path) as running:
        assert running.stdout is not None
        assert "The store is" in running.stdout.readline()
        while "are enqueued" not in running.stdout.readline():
            pass
        births = {pid: start_time(pid) or 0 for pid in children(running.pid)}
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=60)
    assert running.returncode == 0
    assert births
    eventually(lambda: not any(is_alive(pid, at) for pid, at in births.items()))
    assert list(tmp_path.iterdir()) == []
