"""Each job is queued once and ends once, in order, with durations that are differences: always."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from detent import stores
from detent.stores.api import Stored
from detent.surfaces.engines.projecting import lived
from tests.contract.making import Clock
from tests.surfaces.guarantees import Told, need_life
from tests.surfaces.lives import Lives


async def lived_through(url: str, count: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """How the lives ended, by code and whether they ran; and what happened to everybody."""
    clock = Clock()
    async with stores.open(url, clock=clock) as store:
        lives = Lives(store, clock, seed)
        await lives.run(count)
        ends: Counter[str] = Counter()
        for start in range(0, count, 500):
            keys = lives.made[start : start + 500]
            for stored in await store.get(keys):
                assert stored is not None
                ends[need_kept(lives, stored)] += 1
        for key in lives.made[:: max(count // 200, 1)]:
            await need_durable(lives, key)
        assert set(lives.heard) == {name for _, name in lives.made}
        return ends, lives.happened


def need_kept(lives: Lives, stored: Stored) -> str:
    """Every promise about one job; how it ended."""
    job = stored.job
    told = [Told(item.name, item.told) for item in lives.heard[job.id]]
    letters = need_life(told)
    assert (letters[-1] == "C") == (job.state.value == "completed")
    assert (letters[-1] == "C") == (job.id in lives.succeeded)
    assert letters.count("D") == job.attempt
    for one in told:
        if one.name == "JOB_DISPATCHED":
            assert (job.id, one.data["engineId"]) in lives.given
    if letters[-1] == "C":
        return "completed"
    return f"{told[-1].data['error'].partition(':')[0]} {letters[-2]}"


async def need_durable(lives: Lives, key: tuple[str, str]) -> None:
    """What was told as it happened is what the history tells afterwards."""
    [stored] = await lives.store.get([key])
    assert stored is not None
    again = lived(stored, await lives.store.history(key))
    assert [one.data for one in again] == [item.data for item in lives.heard[key[1]]]


HAPPENINGS = (
    "another boot",
    "cancel",
    "disconnect",
    "in use",
    "late",
    "refused Acknowledge",
    "refused Complete",
    "repeated",
    "restart",
    "resume",
)
ENDS = (
    "completed",
    "QUEUE_TIMEOUT Q",
    "ENGINE_NOT_RESPONDING D",
    "JOB_TIMEOUT R",
    "ENGINE_DISCONNECTED D",
    "ENGINE_DISCONNECTED R",
    "CANCELLED Q",
    "CANCELLED R",
    "BAD_ASSET D",
    "BAD_ASSET R",
)


def test_telemetry_guarantees_over_five_thousand_lives() -> None:
    ends, happened = Counter[str](), Counter[str]()
    # In worlds of their own: what a store in memory takes for one grows with all it has.
    for seed in range(10):
        ended, occurred = asyncio.run(lived_through("memory:", 500, seed))
        ends, happened = ends + ended, happened + occurred
    assert sum(ends.values()) == 5_000
    for name in ENDS:
        assert ends[name], (name, ends)
    for name in HAPPENINGS:
        assert happened[name], (name, happened)


def test_telemetry_guarantees_on_a_file(tmp_path: Path) -> None:
    ends, happened = asyncio.run(lived_through(f"sqlite:///{tmp_path}/x.db", 200, seed=11))
    assert ends["completed"]
    assert happened["disconnect"]


GOOD = (
    Told("JOB_QUEUED", {"cursor": 1, "queuedAt": 10}),
    Told("JOB_DISPATCHED", {"cursor": 2, "dispatchedAt": 20, "engineId": "e"}),
    Told("JOB_RUNNING", {"cursor": 3, "startedAt": 30, "engineId": "e"}),
    Told("JOB_COMPLETED", {"cursor": 4, "completedAt": 40, "engineId": "e", "duration": 10}),
)


def changed(at: int, **more: object) -> tuple[Told, ...]:
    one = GOOD[at]
    return (*GOOD[:at], Told(one.name, {**one.data, **more}), *GOOD[at + 1 :])


@pytest.mark.parametrize(
    "told",
    [
        GOOD[1:],
        GOOD[:-1],
        (GOOD[0], *GOOD),
        (*GOOD, GOOD[-1]),
        (GOOD[0], GOOD[2], GOOD[3]),
        (GOOD[0], GOOD[1], GOOD[3]),
        (GOOD[1], GOOD[0], *GOOD[2:]),
        changed(3, duration=11),
        changed(3, completedAt=39),
        changed(3, engineId="other"),
        changed(2, engineId="other"),
        changed(2, startedAt=19),
        changed(1, cursor=1),
    ],
    ids=range(13),
)
def test_a_broken_promise_is_noticed(told: tuple[Told, ...]) -> None:
    assert need_life(GOOD) == "QDRC"
    with pytest.raises(AssertionError):
        need_life(told)
