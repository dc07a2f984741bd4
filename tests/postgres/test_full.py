"""No space left for PostgreSQL: a coded refusal, nothing half written, all goes on afterwards."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psycopg
import pytest

from detent import stores
from detent.errors import StoreFull
from detent.stores.api import Body, Committed
from tests.contract.making import Clock
from tests.contract.world import World
from tests.postgres.running import durable, in_world, sql
from tools.postgres import Server

pytestmark = pytest.mark.slow
# Nothing that the server could make much smaller.
LARGE = Body("mail.send", f'["{Random(1).randbytes(60_000).hex()}"]')
_WAL_MB = "32MB"


class Disk:
    """A file system of its own that is full as soon as somebody says so."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        self._mount("-t", "tmpfs", "-o", f"size={megabytes}m,mode=0777", "tmpfs", str(folder))

    def hold(self, megabytes: int) -> None:
        """Be so large from now on."""
        self._mount("-o", f"remount,size={megabytes}m", str(self.folder))

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)  # noqa: S603, S607

    def _mount(self, *words: str) -> None:
        done = subprocess.run(["mount", *words], capture_output=True, check=False)  # noqa: S603, S607
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.decode()}")


@pytest.fixture
def disk() -> Iterator[Disk]:
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    folder = Path(tempfile.mkdtemp(prefix="full-", dir="/tmp"))
    made = Disk(folder, 100)
    yield made
    made.close()
    folder.rmdir()


@pytest.fixture
def server(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server all of whose files are on that disk."""
    monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
    with durable(min_wal_size=_WAL_MB, max_wal_size=_WAL_MB, fsync="off") as one:
        monkeypatch.undo()
        yield one


async def push(world: World, acknowledged: list[str]) -> None:
    """Large jobs until there is no room; whoever is acknowledged is remembered."""
    while True:
        units = [world.make.pushed(id=world.make.command_id(), body=LARGE) for _ in range(4)]
        stepped = await world.store.step(units, now=world.now)
        assert stepped.outcomes == (Committed(),) * len(units)
        acknowledged += [unit.new[0].job.id for unit in units]


def survivors(url: str, acknowledged: list[str]) -> None:
    """Everything that was acknowledged is there, all of it is sound, and work goes on."""

    async def use(world: World) -> None:
        known = {id_ for _, id_ in await world.everything()}
        assert set(acknowledged) <= known
        await world.push(id="after")
        assert len(await world.claim(5)) == 5

    in_world(url, use)


def test_tables_that_cannot_grow_refuse_and_go_on_when_there_is_room(disk: Disk) -> None:
    disk.hold(16)
    with durable() as server:
        shutil.chown(disk.folder, "nobody")
        sql(server.url("postgres"), f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
        sql(server.url("postgres"), "CREATE DATABASE cramped TABLESPACE small")
        url, acknowledged = server.url("cramped"), list[str]()

        async def use() -> None:
            clock = Clock()
            async with stores.open(url, clock=clock) as store:
                world = World(store, clock)
                with pytest.raises(StoreFull) as told:
                    await push(world, acknowledged)
                assert told.value.retryable
                assert len(await world.everything()) == len(acknowledged)
                disk.hold(64)
                await world.push()

        asyncio.run(use())
        assert acknowledged
        survivors(url, acknowledged)


def test_a_server_whose_whole_disk_is_full_loses_nothing(disk: Disk, server: Server) -> None:
    """Without room for its log the server stops; its operator makes room and starts it again.

    Whoever was about to write then has only waited.
    """
    url, acknowledged = server.url("postgres"), list[str]()
    disk.hold(_used(disk.folder) + 6)

    async def use() -> None:
        clock = Clock()
        async with stores.open(url, clock=clock) as store:
            pushing = asyncio.ensure_future(push(World(store, clock), acknowledged))
            while not pushing.done() and await asyncio.to_thread(_answers, url):
                await asyncio.wait([pushing], timeout=0.1)
            disk.hold(300)
            if not await asyncio.to_thread(_answers, url):
                await asyncio.to_thread(server.control, "restart", "-m", "immediate")
            before = len(acknowledged)
            async with asyncio.timeout(60):
                while not pushing.done() and len(acknowledged) == before:
                    await asyncio.wait([pushing], timeout=0.1)
            pushing.cancel()
            [ended] = await asyncio.gather(pushing, return_exceptions=True)
            assert isinstance(ended, StoreFull | asyncio.CancelledError), ended

    asyncio.run(use())
    assert acknowledged
    survivors(url, acknowledged)


def _answers(url: str) -> bool:
    try:
        return sql(url, "SELECT 1") == [(1,)]
    except psycopg.OperationalError:
        return False


def _used(folder: Path) -> int:
    """How much is in it, in megabytes."""
    return shutil.disk_usage(folder).used >> 20
