"""What users, clients and stored data can see of Detent, as snapshots.

A change that is meant is accepted with `make snapshots`; the difference then stands in the commit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.outside.columns import dump
from tests.outside.day import Day, lived
from tests.postgres.server import databases

SNAPSHOTS = Path(__file__).parent / "snapshots"
LINES_SHOWN = 60
CHARS_SHOWN = 300
Check = Callable[..., None]


@pytest.fixture
def check(pytestconfig: pytest.Config) -> Check:
    """Compare these lines with a snapshot, or write it."""

    def check(name: str, lines: Iterable[str], *, may_write: bool = True) -> None:
        path, found = SNAPSHOTS / name, list(lines)
        if may_write and pytestconfig.getoption("--write", default=False):
            path.write_text("\n".join(found) + "\n", "utf-8")
        kept = path.read_text("utf-8").splitlines() if path.exists() else []
        differences = list(unified_diff(kept, found, "snapshot", "now", n=0, lineterm=""))
        shown = "\n".join(line[:CHARS_SHOWN] for line in differences[:LINES_SHOWN])
        why = f"{name} has changed; if it was meant to, accept it with: make snapshots\n{shown}"
        assert not differences, why

    return check


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """The scripted day on SQLite, with the server still running."""
    with lived(f"sqlite:///{tmp_path_factory.mktemp('day')}/detent.db") as day:
        yield day


def test_what_a_day_leaves_in_sqlite(day: Day, check: Check) -> None:
    check("day.jsonl", everything(day))


def test_it_leaves_the_same_in_postgresql(tmp_path: Path, check: Check) -> None:
    with lived(databases().of(tmp_path)) as day:
        check("day.jsonl", everything(day), may_write=False)


def everything(day: Day) -> list[str]:
    """All that is stored, and whether the proof of it holds."""
    verified = day.command.data("verify")
    del verified["checked"]["head"]
    return [*dump(day.url), json.dumps({"in": "verify", **verified})]
