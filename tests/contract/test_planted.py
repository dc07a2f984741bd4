"""A test of the tests: whoever breaks one rule of a store, however small, is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from inspect import iscoroutinefunction, signature
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from detent.stores.api import Store
from detent.stores.memory import MemoryStore
from tests.contract import (
    test_claims,
    test_fairness,
    test_feed,
    test_fences,
    test_flow_commands,
    test_flows,
    test_keeping,
    test_legality,
    test_limits,
    test_reading,
    test_records,
    test_results,
    test_switches,
    test_tenants,
    test_time,
    test_uniqueness,
    test_workers,
)
from tests.contract.making import Clock
from tests.contract.planted import planted
from tests.contract.test_differential import run
from tests.contract.world import World

MODULES = (
    test_fences,
    test_claims,
    test_time,
    test_uniqueness,
    test_legality,
    test_reading,
    test_feed,
    test_tenants,
    test_limits,
    test_fairness,
    test_records,
    test_results,
    test_switches,
    test_keeping,
    test_flows,
    test_flow_commands,
    test_workers,
)
BUGS = planted()
PATIENCE_S = 2.0
"""Who sleeps longer than this, in a store that takes no time, has not been woken."""
NOTICED = (Exception, pytest.fail.Exception)
SEEDS = 200
Promise = Callable[[World], Awaitable[None]]


class Place(msgspec.Struct):
    """Where a bug was noticed once: it is looked for there first, and then everywhere else."""

    promise: str | None = None
    seed: int = 0


FILE = Path(__file__).with_name("noticed.json")
PLACES = msgspec.json.decode(FILE.read_bytes(), type=dict[str, Place])
# What chance does not do, or too seldom: many callers at once, clocks that run ahead or disagree
# about the lost, versions of the future, command ids that are used twice, handing out less than
# everything that is due, several small records that are due at once, the very moment at which a
# result may go, leases that are no news, switches in units, waiting, processes that share a pid,
# and shipments that skip something or bear the name of a job.
NOT_BY_CHANCE = {
    "ALeaseIsGivenTwice",
    "ALifeMayHaveAGap",
    "APidIsEnough",
    "AnyNameIsTaken",
    "AnybodysCommandIsOwn",
    "ChecksAndWritesAreTornApart",
    "DueGoesById",
    "DueRecordsGoByName",
    "EndsUnderALimitWakeNobody",
    "EveryClockIsBelieved",
    "GatesOfAUnitAreForgotten",
    "LeasesOfOtherTenantsAreFree",
    "LimitsOfAUnitAreForgotten",
    "LinesOutliveTheirJob",
    "LostWorkersMayClaim",
    "OneDueItemTooMany",
    "OnlyOlderVersionsAreFenced",
    "OpenedStepsWakeNobody",
    "ResultsGoOneMicrosecondEarly",
    "SeenIsNotLookedAt",
    "SwitchesOfARefusedUnitStay",
    "TheNewestResultsGoFirst",
    "TurnsAreForgottenAtOnce",
    "TurnsAreKeptForEver",
    "TwoClaimersReadBeforeEitherWrites",
}


def promises(module: ModuleType) -> Iterator[tuple[str, Promise]]:
    """Every promise of a module, with each of its parameters."""
    for name, test in vars(module).items():
        if not name.startswith("test_") or not iscoroutinefunction(test):
            continue
        marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
        for chosen in product(*(_values(mark) for mark in marks)):
            told = {key: value for one in chosen for key, value in one.items()}
            assert {"world", *told} == set(signature(test).parameters)
            yield name, partial(test, **told)


def _values(mark: pytest.Mark) -> list[dict[str, Any]]:
    names, rows = mark.args
    if isinstance(names, str):
        return [{names: row} for row in rows]
    return [dict(zip(names, row, strict=True)) for row in rows]


PROMISES = [promise for module in MODULES for promise in promises(module)]


async def keep(promise: Promise, make: Callable[[Clock], Store]) -> None:
    """Hold a new store to one promise, audit included."""
    clock = Clock()
    async with make(clock) as store:
        world = World(store, clock)
        async with asyncio.timeout(PATIENCE_S):
            await promise(world)
        await world.audit()


def noticed_by(make: Callable[[Clock], Store], first: str | None = None) -> str | None:
    """A promise that this store breaks, which may be the one that is tried first."""
    for name, promise in sorted(PROMISES, key=lambda named: named[0] != first):
        try:
            asyncio.run(keep(promise, make))
        except NOTICED:
            return name
    return None


def differs(make: Callable[[Clock], Store], folder: Path, first: int = 0) -> int | None:
    """The seed with which chance finds a difference between the model and this store."""
    for seed in sorted(range(SEEDS), key=lambda seed: seed != first):
        try:
            asyncio.run(run(lambda _, clock: make(clock), seed, 80, folder))  # type: ignore[arg-type]
        except NOTICED:
            return seed
    return None


def test_a_store_without_a_bug_is_not_suspected() -> None:
    """Otherwise the tests below would prove nothing."""
    assert len(PROMISES) > 150
    assert noticed_by(MemoryStore) is None


@pytest.mark.slow
def test_chance_does_not_suspect_a_store_without_a_bug(tmp_path: Path) -> None:
    assert differs(MemoryStore, tmp_path) is None


@pytest.mark.parametrize("bug", list(BUGS))
def test_the_contract_notices(bug: str) -> None:
    assert noticed_by(BUGS[bug], PLACES.get(bug, Place()).promise) is not None


@pytest.mark.slow
@pytest.mark.parametrize("bug", [name for name in BUGS if name not in NOT_BY_CHANCE])
def test_chance_notices(bug: str, tmp_path: Path) -> None:
    assert differs(BUGS[bug], tmp_path, PLACES.get(bug, Place()).seed) is not None
