"""Verification names what is wrong, and says nothing where nothing is."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from detent import stores
from detent.engine.verify import Check, Finding, Seen, Verification
from detent.lifecycle import job as j
from detent.lifecycle.seal import Block
from detent.stores.api import Counted, Fed, Key, ReadStore
from detent.stores.memory import MemoryStore
from tests.contract.making import USER, WORKER, Clock
from tests.contract.world import World
from tests.engine import flow_damage
from tests.engine.damage import DAMAGES, EVENTS_IN_A_BLOCK, Damage, fill, plant
from tests.sqlite.processes import url_of


async def found_in(store: ReadStore, tenant: str | None = None) -> list[Finding]:
    return [one async for one in Verification(store, tenant=tenant).findings()]


def found_at(path: Path, tenant: str | None = None) -> list[Finding]:
    async def verify() -> list[Finding]:
        async with stores.open(url_of(path), clock=Clock()) as store:
            return await found_in(store, tenant)

    return asyncio.run(verify())


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a bit of everything in it, and nothing wrong."""
    path = tmp_path_factory.mktemp("verify") / "sound.db"
    fill(path)
    return path


@pytest.fixture
def path(sound: Path, tmp_path: Path) -> Path:
    """A file of one's own to damage."""
    return Path(shutil.copy(sound, tmp_path / "detent.db"))


@pytest.fixture(scope="module")
def sound_flows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with workflows, a part of which was forgotten, and nothing wrong."""
    path = tmp_path_factory.mktemp("verify") / "flows.db"
    flow_damage.fill(path)
    return path


@pytest.fixture
def flowing(sound_flows: Path, tmp_path: Path) -> Path:
    """One of these to damage."""
    return Path(shutil.copy(sound_flows, tmp_path / "detent.db"))


# --- files that somebody has written to -----------------------------------------------------------


def test_nothing_is_wrong_with_what_nobody_has_touched(path: Path) -> None:
    assert found_at(path) == []


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(path: Path, name: str) -> None:
    _need_named(path, DAMAGES[name])


def _need_named(path: Path, damage: Damage) -> None:
    plant(path, damage)
    found = found_at(path)
    first = found[0]
    assert first.check == damage.check, found
    assert re.fullmatch(damage.where, first.where), found
    assert re.search(damage.why, first.why), first
    assert first.look.startswith("await store.")


def test_nothing_is_wrong_with_workflows_and_what_retention_has_left(flowing: Path) -> None:
    assert found_at(flowing) == []


@pytest.mark.parametrize("name", flow_damage.DAMAGES)
def test_damage_to_workflows_and_to_what_is_forgotten_is_named(flowing: Path, name: str) -> None:
    _need_named(flowing, flow_damage.DAMAGES[name])


def test_every_offender_is_found_not_only_the_first(path: Path) -> None:
    names = ["the queue of the record", "a counter of the record", "a count that is too high"]
    for name in (*names, "the root of a block", "an ended lease has a row"):
        plant(path, DAMAGES[name])
    checks = {(one.check, one.where) for one in found_at(path)}
    assert checks == {
        (Check.HISTORY, "done version 3"),
        (Check.HISTORY, "waits-07 of tenant t version 1"),
        (Check.LEASE, "was-wired version 3"),
        (Check.SEAL, "block 2"),
        (Check.SEAL, "block 3"),
        (Check.COUNT, "the counts"),
    }


def test_one_tenant_can_be_asked_about(path: Path) -> None:
    assert found_at(path, "t") == []
    plant(path, DAMAGES["the queue of the record"])
    assert [one.where for one in found_at(path, "t")] == ["waits-07 of tenant t version 1"]
    assert found_at(path, "") == []
    assert found_at(path, "nobody") == []


def test_another_tenants_damage_stays_out_of_sight(path: Path) -> None:
    for name in ("a counter of the record", "a count that is too high", "an event of nobody"):
        plant(path, DAMAGES[name])
    assert found_at(path, "t") == []
    assert len(found_at(path, "")) == 3


def test_seals_are_everybodys(path: Path) -> None:
    plant(path, DAMAGES["a sealed event was done by somebody else"])
    assert [one.where for one in found_at(path, "t")] == ["position 1 of the feed"]


def test_what_was_seen_is_told_on_the_way(path: Path) -> None:
    told: list[Seen] = []

    async def verify() -> Seen:
        async with stores.open(url_of(path), clock=Clock()) as store:
            verification = Verification(store, watch=lambda seen: told.append(replace(seen)))
            assert [one async for one in verification.findings()] == []
            return verification.seen

    seen = asyncio.run(verify())
    assert (seen.events, seen.fed) == (seen.end, seen.end)
    assert seen.records == 31
    assert seen.blocks == -(-(seen.end - 1) // EVENTS_IN_A_BLOCK)
    assert seen.head is not None
    assert [one.events for one in told] == sorted(one.events for one in told)


def test_five_thousand_jobs_pass(tmp_path: Path) -> None:
    async def verify() -> tuple[list[Finding], int]:
        clock = Clock()
        async with stores.open(url_of(tmp_path / "detent.db"), clock=clock) as store:
            world = World(store, clock)
            for _ in range(10):
                await world.must(*(world.make.pushed() for _ in range(500)))
                jobs = [one.job for one in await world.claim(250)]
                ends = [world.make.doing(job, j.Complete(lease=job.lease), WORKER) for job in jobs]
                await world.must(*ends)
            while await store.seal(limit=3_000):
                pass
            verification = Verification(store)
            return [one async for one in verification.findings()], verification.seen.records

    assert asyncio.run(verify()) == ([], 5_000)


# --- stores that contradict themselves ------------------------------------------------------------


class Sound(MemoryStore):
    """Nothing is wrong."""


class FeedHasAGap(MemoryStore):
    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        return [fed for fed in await super().feed(after, limit + 1) if fed.pos != 3][:limit]


class FeedSaysSomethingElse(MemoryStore):
    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        return [self._twisted(fed) for fed in await super().feed(after, limit)]

    def _twisted(self, fed: Fed) -> Fed:
        return replace(fed, event=replace(fed.event, actor_id="eve")) if fed.pos == 3 else fed


class KeysForget(MemoryStore):
    async def keys(self, after: Key | None = None, limit: int = 1_000) -> Sequence[Key]:
        return [key for key in await super().keys(after, limit) if key[1] != "job-000001"]


class KeysRepeat(MemoryStore):
    async def keys(self, after: Key | None = None, limit: int = 1_000) -> Sequence[Key]:
        return [again for key in await super().keys(after, limit) for again in (key, key)]


class FeedEndsEarly(MemoryStore):
    """Events that nobody has taken into the feed yet, as where that is done by somebody else."""

    async def feed(self, after: int = 0, limit: int = 1_000) -> Sequence[Fed]:
        return [fed for fed in await super().feed(after, limit) if fed.pos <= 2]

    async def histories(self, keys: Sequence[Key]) -> Sequence[Sequence[Fed]]:
        found = await super().histories(keys)
        return [[fed if fed.pos <= 2 else replace(fed, pos=0) for fed in one] for one in found]


class CountsRunAhead(MemoryStore):
    async def counts(self, tenant: str | None = None) -> Sequence[Counted]:
        return [replace(one, count=one.count + 1) for one in await super().counts(tenant)]


class BlocksEndEarly(MemoryStore):
    """The number of blocks is known, but the last of them is not shown among others."""

    async def blocks(self, after: int = 0, limit: int = 1_000) -> Sequence[Block]:
        found = await super().blocks(after, limit)
        return found if limit == 1 else found[:-1]


LIARS: dict[type[MemoryStore], list[tuple[Check, str]]] = {
    Sound: [],
    FeedEndsEarly: [],
    FeedHasAGap: [
        (Check.FEED, "position 3 of the feed"),
        (Check.FEED, "job-000001 version 2"),
    ],
    FeedSaysSomethingElse: [(Check.FEED, "job-000001 version 2")] * 2,
    KeysForget: [
        (Check.FEED, "job-000001 version 1"),
        (Check.FEED, "job-000001 version 2"),
    ],
    KeysRepeat: [(Check.FEED, "position 1 of the feed")],
    CountsRunAhead: [(Check.COUNT, "the counts")] * 2,
    BlocksEndEarly: [(Check.SEAL, "block 2")],
}


@pytest.mark.parametrize("kind", LIARS)
def test_a_store_that_contradicts_itself_is_found_out(kind: type[MemoryStore]) -> None:
    async def verify() -> list[tuple[Check, str]]:
        clock = Clock()
        async with kind(clock) as store:
            world = World(store, clock)
            job, _ = await world.push(), await world.push()
            await world.do(job, j.Cancel(), USER)
            await world.push()
            for _ in range(2):
                await store.seal(limit=1)
            return [(one.check, one.where) for one in await found_in(store)]

    assert asyncio.run(verify()) == LIARS[kind]
