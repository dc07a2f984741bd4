"""The live table of `detent up`, in terminals of any width."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from detent.cli.fleetview import jobs_table, slots_table
from detent.runtime.supervisor.snapshot import Snapshot

WORKER = Snapshot("worker-1", "worker-1", "process", "Running", instance="i", pid=1_234_567)
TREE = Snapshot("workers", "", "supervisor", "Running", children=(WORKER,))


@pytest.mark.parametrize("width", [40, 80, 200])
def test_what_matters_can_be_read_in_any_terminal(width: int) -> None:
    """Eight columns in forty were `w\u2026` and `2\u2026`."""
    console = Console(file=StringIO(), width=width)
    with console.capture() as captured:
        console.print(slots_table("app.py", TREE, {"i": {"running": 17}}, width))
        console.print(jobs_table({"completed": 12_345}, width))
    shown = captured.get()
    for word in ("worker-1", "Running", "1234567", "17", "completed", "12345"):
        assert word in shown
    assert "\u2026" not in shown
