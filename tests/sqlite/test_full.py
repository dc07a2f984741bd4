"""No space left: a coded refusal, nothing half written, and all goes on when space returns."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from detent import stores
from detent.errors import StoreFull
from detent.stores.api import Body, Committed, Record, Retention, Store, Unit
from detent.stores.sqlite import SqliteStore
from tests.sqlite.processes import faults_of, url_of
from tests.sqlite.toil import Toiler

LARGE = Body("mail.send", f'["{"x" * 20_000}"]')


TEXT = "x" * 20_000
Writing: TypeAlias = Callable[[Store, Toiler], Awaitable[int]]


async def commit(store: Store, make: Toiler, unit: Unit) -> None:
    stepped = await store.step([unit], now=make.now)
    assert stepped.outcomes == (Committed(),)


async def push(store: Store, make: Toiler) -> int:
    """One large job; how many jobs that makes."""
    await commit(store, make, make.pushed(id=make.command_id(), body=LARGE))
    return 1


async def put(store: Store, make: Toiler) -> int:
    """A large small record."""
    record = Record("note", make.command_id(), 1, json.dumps(TEXT))
    await commit(store, make, Unit(make.command_id(), puts=(record,)))
    return 0


async def flow(store: Store, make: Toiler) -> int:
    """A workflow with its jobs and its small record."""
    unit = make.flow()
    large = [replace(new, body=LARGE) for new in unit.new]
    await commit(store, make, replace(unit, new=tuple(large)))
    return len(unit.new)


async def live(store: Store, make: Toiler) -> int:
    """A job from its birth to its end, which is sealed; another is forgotten for it."""
    await push(store, make)
    want = make.want(1, holder=make.name, wire=True, lease_us=1)
    stepped = await store.step([], now=make.now, want=want)
    await store.step(make.completing(stepped.claimed), now=make.now)
    await store.seal()
    make.clock.move(1)
    return 1 - await store.prune([Retention("completed", make.now)], now=make.now, limit=1)


async def fill(store: Store, make: Toiler, write: Writing) -> int:
    """Write until there is no room; how many jobs were acknowledged."""
    pushed = 0
    with suppress(StoreFull):
        while True:
            pushed += await write(store, make)
    return pushed


async def count(store: Store) -> int:
    return sum(one.count for one in await store.counts())


@pytest.mark.parametrize("write", [push, put, flow])
def test_a_database_that_may_not_grow_refuses_and_recovers(tmp_path: Path, write: Writing) -> None:
    path = tmp_path / "detent.db"

    async def main() -> None:
        make = Toiler("p")
        store = SqliteStore(path, make.clock)
        async with store:
            await limit(store, 150)
            pushed = await fill(store, make, write)
            with pytest.raises(StoreFull):
                await write(store, make)
            assert await count(store) == pushed
            await limit(store, 1_000_000)
            await write_all(store, make)

    asyncio.run(main())
    assert faults_of(path) == []


async def write_all(store: Store, make: Toiler) -> None:
    """A bit of everything, and it is there."""
    before = await count(store)
    added = sum([await write(store, make) for write in (push, put, flow, live)])
    assert await count(store) == before + added


def test_retention_makes_room_in_a_database_that_may_not_grow(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"

    async def main() -> None:
        make = Toiler("p")
        store = SqliteStore(path, make.clock)
        async with store:
            done = await ended(store, make, 5)
            await limit(store, 150)
            await fill(store, make, push)
            rules = [Retention("completed", make.now)]
            assert await store.prune(rules, now=make.now, limit=100) == done
            await push(store, make)

    asyncio.run(main())
    assert faults_of(path) == []


async def ended(store: Store, make: Toiler, number: int) -> int:
    """So many large jobs that have ended and are sealed."""
    for _ in range(number):
        await push(store, make)
    want = make.want(number, holder=make.name, wire=True, lease_us=1)
    stepped = await store.step([], now=make.now, want=want)
    await store.step(make.completing(stepped.claimed), now=make.now)
    await store.seal()
    make.clock.move(1)
    return number


async def limit(store: SqliteStore, pages: int) -> None:
    writer = store._opened().writer  # noqa: SLF001 - the limit is one of the writing connection
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


@pytest.mark.parametrize("write", [push, put, flow, live])
def test_a_full_disk_refuses_and_recovers(small_disk: Path, write: Writing) -> None:
    path, ballast = small_disk / "detent.db", small_disk / "ballast"

    async def main() -> None:
        make = Toiler("p")
        async with stores.open(url_of(path), clock=make.clock) as store:
            await push(store, make)
            ballast.write_bytes(bytes(500_000))
            await fill(store, make, write)
            with pytest.raises(StoreFull):
                await write(store, make)
            assert await count(store) > 0
            ballast.unlink()
            await write_all(store, make)

    asyncio.run(main())
    assert faults_of(path) == []
