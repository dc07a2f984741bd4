"""Whoever waits hears of what others commit: at once where the system tells of it, or soon."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path

import pytest

from detent.stores.sqlite import SqliteStore, sleeping
from detent.stores.sqlite.sleeping import Sleep
from tests.contract.making import Clock
from tests.contract.world import World

FOR_EVER_S = 60.0
SOON_S = 20.0
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="nobody tells elsewhere")


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "detent.db-wal"
    path.write_bytes(b"before")
    return path


def write(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def proven(sleep: Sleep, journal: Path) -> None:
    """It has heard of a write, and nothing keeps it awake any more."""
    sleep.doze()
    write(journal)
    sleep.know()
    while time.monotonic() <= sleep._alert_until:  # noqa: SLF001 - when that is nobody else tells
        sleep.doze()


@on_linux
def test_a_write_of_another_ends_it(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleeping, "CALM_S", FOR_EVER_S)
    sleep, begun = Sleep(journal), time.monotonic()
    proven(sleep, journal)
    other = threading.Thread(target=write, args=(journal,))
    other.start()
    sleep.doze()
    other.join()
    sleep.close()
    assert time.monotonic() - begun < SOON_S


def test_a_call_ends_it_and_is_not_lost_before_it(journal: Path) -> None:
    sleep, begun = Sleep(journal), time.monotonic()
    sleep.wake()
    sleep.rest()
    other = threading.Thread(target=sleep.wake)
    other.start()
    sleep.rest()
    other.join()
    sleep.close()
    assert time.monotonic() - begun < SOON_S


def test_where_nobody_tells_it_ends_soon(tmp_path: Path) -> None:
    sleep, begun = Sleep(tmp_path / "nowhere"), time.monotonic()
    for _ in range(10):
        sleep.doze()
        sleep.know()
    sleep.close()
    assert time.monotonic() - begun < SOON_S


@on_linux
def test_a_store_hears_of_every_commit_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeping, "CALM_S", 1.0)
    path, clock, begun = tmp_path / "detent.db", Clock(), time.monotonic()

    async def main() -> None:
        async with SqliteStore(path, clock) as mine, SqliteStore(path, clock) as theirs:
            other = World(theirs, clock)
            for number in range(20):
                seen = (await mine.step([], now=clock.now, want=other.make.want())).claimed.seen
                waiting = asyncio.ensure_future(mine.wait(FOR_EVER_S, seen))
                for _ in range(number):
                    await asyncio.sleep(0)
                await other.push()
                assert await waiting

    asyncio.run(main())
    assert time.monotonic() - begun < SOON_S
