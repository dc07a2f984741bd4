"""Somebody who reads and never ends lets the log grow: the operator is told in time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from detent import stores
from detent.stores.api import Body
from detent.stores.sqlite import growing
from detent.stores.sqlite.growing import Growth
from tests.contract.making import Clock
from tests.contract.world import World
from tests.sqlite.processes import url_of

MB = 1 << 20


def test_each_doubling_is_told_and_the_end_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growing, "LARGE", MB)
    caplog.set_level("INFO")
    seconds = iter(range(100))
    growth = Growth(tmp_path / "x.db-wal", lambda: float(next(seconds)))
    for size in (0, MB, MB + 1, 2 * MB, 2 * MB + 1, 3 * MB, 9 * MB, MB):
        (tmp_path / "x.db-wal").write_bytes(bytes(size))
        growth.look()
    told = [message.partition("more than ")[2][:4] for message in caplog.messages]
    assert told == ["1 MB", "2 MB", "8 MB", ""]
    assert f"`fuser {tmp_path}/x.db`" in caplog.messages[0]
    assert caplog.messages[-1] == "what is committed cannot be taken into x.db: that is over"


def test_a_store_tells_of_a_reader_that_never_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "detent.db"
    monkeypatch.setattr(growing, "LARGE", 2 * MB)

    async def main() -> None:
        clock = Clock()
        async with stores.open(url_of(path), clock=clock) as store:
            world = World(store, clock)
            with closing(sqlite3.connect(path, isolation_level=None)) as reader:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM detent_jobs").fetchall()
                while not caplog.messages:
                    await world.push(body=Body("a", f'["{"x" * 300_000}"]'))

    asyncio.run(main())
    assert "cannot be taken into detent.db" in caplog.messages[0]
