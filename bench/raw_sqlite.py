"""The statements of the SQLite store in tight loops: what the database alone can do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from detent.stores.sqlite.connection import open_writer
from detent.stores.sqlite.statements import SQL, split

__all__ = ["Raw"]

_NOW = 1_700_000_000_000_000
_LANE = ("", "default", "pull", "mail.send", "python")
_JOB_COLUMNS = SQL["job_insert"].count("?")
_REST = '{"made":{"profile":"python","delivery":"pull"},"queue":"default","priority":0,"place":1}'


class Raw:
    """One connection with the settings of the store, and nothing else of it."""

    def __init__(self, path: Path) -> None:
        self._connection = open_writer(path)
        self._last = self._connection.execute(SQL["last_seq"]).fetchone()[0]
        self._pos = self._connection.execute(SQL["last_pos"]).fetchone()[0]
        self._active: list[tuple[str, int]] = []

    def close(self) -> None:
        """Give the file back."""
        self._connection.close()

    def grow(self, state: str, first: int, number: int) -> None:
        """Jobs out of nothing, by plain SQL."""
        values = {"state": state, "first": first, "last": first + number - 1}
        self._connection.execute(SQL["begin"])
        for statement in split(Path(__file__).with_name("grow.sql").read_text("utf-8")):
            self._connection.execute(statement, {**values, "is_over": state == "completed"})
        self._connection.execute(SQL["commit"])

    def push(self, number: int) -> None:
        """New jobs with body and event, in one transaction."""
        first, self._last = self._last + 1, self._last + number
        numbers = range(first, self._last + 1)
        self._connection.execute(SQL["begin"])
        self._many("job_insert", [_job(seq) for seq in numbers])
        self._many("body_insert", [(seq, "[]", "{}", None, None, None) for seq in numbers])
        self._record([f"{seq:032}" for seq in numbers], 1, ("enqueue", None, "available"))
        self._count("available", number)
        self._connection.execute(SQL["commit"])

    def step(self, number: int) -> None:
        """Complete what was claimed, claim as many again, in one transaction."""
        self._connection.execute(SQL["begin"])
        self._move(self._active, 2, ("complete", "active", "completed"))
        found = self._connection.execute(SQL["lane"], (*_LANE, None, _NOW)).fetchmany(number)
        self._active = [(job, seq) for _, _, job, seq, *_ in found]
        self._move(self._active, 1, ("claim", "available", "active"))
        self._connection.execute(SQL["commit"])
        assert len(found) == number, "the backlog is used up"

    def _move(
        self, jobs: Sequence[tuple[str, int]], version: int, how: tuple[str, str, str]
    ) -> None:
        if not jobs:
            return
        _, source, target = how
        self._many("job_move", [_moved(seq, version, target) for _, seq in jobs])
        self._record([job for job, _ in jobs], version + 1, how)
        self._count(source, -len(jobs))
        self._count(target, len(jobs))

    def _record(self, jobs: Sequence[str], version: int, how: tuple[str, str | None, str]) -> None:
        by = ("worker", "w1", "command-1", "job", _REST)
        first, self._pos = self._pos + 1, self._pos + len(jobs)
        rows = [(pos, "", job, version, _NOW, *how, *by) for pos, job in enumerate(jobs, first)]
        self._many("event_insert", rows)

    def _count(self, state: str, number: int) -> None:
        self._connection.execute(SQL["count"], ("", "default", state, number))
        if state == "available":
            self._connection.execute(SQL["lane_count"], (*_LANE, "", number))

    def _many(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.executemany(SQL[name], rows)


def _job(seq: int) -> tuple[Any, ...]:
    head = (seq, "", f"{seq:032}", 1, "available", "python", "default", 0, "pull", 3, 3)
    times = (_NOW, _NOW, _NOW, None, seq, 0, 0, 0, 0, 0)
    rest = (None, None, None, None, None, None, None, 0, None, _NOW, _NOW)
    row = (*head, *times, *rest)
    return (*row, *[None] * (_JOB_COLUMNS - len(row) - 5), "mail.send", None, None, 0, 0)


def _moved(seq: int, version: int, state: str) -> tuple[Any, ...]:
    is_over = state == "completed"
    head = (version + 1, state, "default", 0, _NOW, _NOW, "available", seq, 0, 1, 0, 0, 0, None)
    held = (None if is_over else f"lease-{seq}", "w1", 0, None, _NOW, _NOW, _NOW, _NOW)
    return (*head, *held, *[None] * 3, _NOW if is_over else None, *[None] * 7, 0, seq, version)
