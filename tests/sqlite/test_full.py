"""No space left: a coded refusal, nothing half written, and all goes on when space returns."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from detent import stores
from detent.errors import StoreFull
from detent.stores.api import Body, Committed, Store
from detent.stores.sqlite import SqliteStore
from tests.sqlite.child import Own
from tests.sqlite.processes import faults_of, url_of

LARGE = Body("mail.send", f'["{"x" * 20_000}"]')


async def push(store: Store, make: Own) -> str:
    unit = make.pushed(id=make.command_id(), body=LARGE)
    stepped = await store.step([unit], now=make.now)
    assert stepped.outcomes == (Committed(),)
    return unit.new[0].job.id


async def fill(store: Store, make: Own) -> list[str]:
    """Push until there is no room; the ids of what was acknowledged."""
    pushed = []
    with suppress(StoreFull):
        while True:
            pushed.append(await push(store, make))
    return pushed


async def count(store: Store) -> int:
    return sum(one.count for one in await store.counts())


def test_a_database_that_may_not_grow_refuses_and_recovers(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def main() -> None:
        make = Own("p")
        store = SqliteStore(path, make.clock)
        async with store:
            await limit(store, 100)
            pushed = await fill(store, make)
            assert pushed
            with pytest.raises(StoreFull):
                await push(store, make)
            assert await count(store) == len(pushed)
            await limit(store, 1_000_000)
            await push(store, make)
            assert await count(store) == len(pushed) + 1

    asyncio.run(main())
    assert faults_of(path) == []


async def limit(store: SqliteStore, pages: int) -> None:
    writer = store._writer  # noqa: SLF001 - the limit is one of the writing connection
    assert writer is not None
    await writer.do(lambda tx: tx.connection.execute(f"PRAGMA max_page_count = {pages}").fetchall())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of two megabytes; only root can make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:  # noqa: S603
        pytest.skip("a small disk cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)  # noqa: S603, S607


def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    path, ballast = small_disk / "detent.db", small_disk / "ballast"

    async def main() -> None:
        make = Own("p")
        async with stores.open(url_of(path), clock=make.clock) as store:
            first = await push(store, make)
            ballast.write_bytes(bytes(500_000))
            pushed = [first, *await fill(store, make)]
            assert await count(store) == len(pushed)
            with pytest.raises(StoreFull):
                await push(store, make)
            ballast.unlink()
            pushed.append(await push(store, make))
            found = await store.get([("", job) for job in pushed])
            assert None not in found

    asyncio.run(main())
    assert faults_of(path) == []
