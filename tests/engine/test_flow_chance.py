"""Whatever happens to workflows, in whatever order: steps end once and as their graph says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from detent import stores
from detent.lifecycle.event import Event
from detent.lifecycle.workflow import STEP, WORKFLOW
from tests.contract.backends import Backend
from tests.contract.making import Clock
from tests.contract.world import World
from tests.engine.flow_chance import Chance

WALKS = 150
BETWEEN = {"sqlite": 12, "postgresql": 4}
"""Walks between two servers: fewer on a store that takes longer, none where all is one process."""


async def _walk(seed: int) -> list[Event]:
    clock = Clock()
    async with stores.open("memory:", clock=clock) as store:
        chance = Chance(World(store, clock), seed)
        await chance.run()
        return await chance.judge()


@pytest.mark.slow
def test_chance_finds_every_move_and_no_fault() -> None:
    seen: set[tuple[str, str | None, str, str | None]] = set()
    for seed in range(WALKS):
        try:
            events = asyncio.run(_walk(seed))
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        seen |= {(one.kind, one.source, one.name, one.target) for one in events}
    declared = {(m.name, *triple) for m in (STEP, WORKFLOW) for triple in m.triples}
    # A draft is its builder's alone, and pausing what was just made needs more luck than this.
    missing = declared - seen
    assert missing <= {
        ("workflow", "created", "pause", "paused"),
        ("workflow", "created", "abort", "aborted"),
        ("workflow", "created", "extended", None),
    }, missing


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "seed"),
    [(name, seed) for name, walks in BETWEEN.items() for seed in range(walks)],
    indirect=["backend"],
)
async def test_chance_finds_no_fault_between_servers(
    world: World, backend: Backend, tmp_path: Path, seed: int
) -> None:
    async with backend(tmp_path, world.clock) as other:
        chance = Chance(world, 1_000 + seed, other)
        await chance.run()
        await chance.judge()
