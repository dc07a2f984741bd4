"""Every store does what the model does, whatever happens to both."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from detent.lifecycle.job import JOB
from detent.lifecycle.workflow import STEP, WORKFLOW
from tests.contract.backends import BACKENDS, Backend
from tests.contract.happenings import ACTIONS, Action, Happenings, live
from tests.contract.making import Clock
from tests.contract.twins import Triple, Twins

OTHERS = [name for name in BACKENDS if name != "memory"]
MACHINES = (JOB, WORKFLOW, STEP)
ALL: set[Triple] = {(machine.name, *triple) for machine in MACHINES for triple in machine.triples}


async def run(backend: Backend, seed: int, steps: int, folder: Path) -> Counter[Triple]:
    """One seeded run against the model; which triples of the tables it used."""
    clock = Clock()
    model, other = BACKENDS["memory"](folder, clock), backend(folder, clock)
    async with model, other:
        chance = Happenings(Twins(model, other, clock))
        await live(chance, Random(seed), steps)
        return chance.twins.used


@pytest.fixture
def folders(tmp_path: Path) -> Iterator[Path]:
    """A new folder each time, so that no run finds what another left."""
    return iter(lambda: Path(tempfile.mkdtemp(dir=tmp_path)), None)


@pytest.mark.parametrize("name", list(BACKENDS))
@pytest.mark.parametrize("seed", range(4))
def test_a_seeded_life_leaves_both_stores_equal(name: str, seed: int, tmp_path: Path) -> None:
    asyncio.run(run(BACKENDS[name], seed, 60, tmp_path))


KNOWN = (*range(15), 16, 19, 46, 65, 116, 235)
"""What the search below found last; it takes long, and finds the same until the tables change."""


@cache
def useful_seeds() -> tuple[int, ...]:
    """Lives that reach an edge which none before them reached; together they reach every edge.

    What happens in a life depends on the model alone, so it is the same beside every other store.
    """
    seen: set[Triple] = set()
    useful = []
    for seed in (*KNOWN, *sorted(set(range(300)) - set(KNOWN))):
        with tempfile.TemporaryDirectory() as folder:
            used = set(asyncio.run(run(BACKENDS["memory"], seed, 120, Path(folder))))
        if used - seen:
            useful.append(seed)
            seen |= used
        if seen == ALL:
            break
    # A run that never reaches an edge proves nothing about it, so reaching is asserted.
    assert seen == ALL, f"never used: {sorted(map(str, ALL - seen))}"
    return tuple(useful)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_seeded_lives_leave_both_stores_equal_and_use_every_triple(
    name: str, folders: Iterator[Path]
) -> None:
    used: Counter[Triple] = Counter()
    for seed, folder in zip(useful_seeds(), folders, strict=False):
        used += asyncio.run(run(BACKENDS[name], seed, 120, folder))
    assert set(used) == ALL


class Differential(RuleBasedStateMachine):
    """The shrinking twin of the seeded driver: the same actions, smaller counterexamples."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory()
        clock, folder = Clock(), Path(self.folder.name)
        model, other = BACKENDS["memory"](folder, clock), backend(folder, clock)
        self.runner.run(model.__aenter__())
        self.runner.run(other.__aenter__())
        self.twins = Twins(model, other, clock)
        self.chance = Happenings(self.twins)

    def happen(self, action: Action, rng: Random) -> None:
        """One action, and the comparison after it."""

        async def both() -> None:
            await action(self.chance, rng)
            await self.twins.compare()

        self.runner.run(both())

    def teardown(self) -> None:
        """Close both, whatever was found."""
        self.runner.run(self.twins.model.__aexit__(None, None, None))
        self.runner.run(self.twins.other.__aexit__(None, None, None))
        self.runner.close()
        self.folder.cleanup()

    @initialize(rng=st.randoms(use_true_random=False))
    def begin(self, rng: Random) -> None:
        """There are workers and jobs."""
        self.happen(Happenings.beat, rng)
        self.happen(Happenings.push, rng)


def _ruled(action: Action) -> object:
    """The action as a rule of the state machine."""

    def happen(self: Differential, rng: Random) -> None:
        self.happen(action, rng)

    return rule(rng=st.randoms(use_true_random=False))(happen)


RULES = {action.__name__: _ruled(action) for action in ACTIONS}
MACHINE = type("Chances", (Differential,), RULES)


def search(backend: Backend, examples: int, steps: int) -> None:
    """Let Hypothesis look for a life that the two stores remember differently."""
    wanted = settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    machine: Any = partial(MACHINE, backend)
    run_state_machine_as_test(machine, settings=wanted)


@pytest.mark.parametrize("name", OTHERS)
def test_hypothesis_finds_no_life_that_the_stores_remember_differently(name: str) -> None:
    search(BACKENDS[name], examples=8, steps=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_hypothesis_finds_none_in_many_longer_lives_either(name: str) -> None:
    # A server that is asked over a socket takes its time.
    search(BACKENDS[name], examples=14 if name == "postgresql" else 40, steps=50)
