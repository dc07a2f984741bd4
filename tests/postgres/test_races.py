"""What may happen between two statements, each time held there on purpose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from detent.stores.api import LimitKind
from detent.stores.postgres.connection import Connection
from tests.contract.world import HOUR, World
from tests.postgres.running import in_world
from tests.postgres.server import databases


@pytest.fixture
def url(tmp_path: Path) -> str:
    return databases().of(tmp_path)


class Held:
    """The first run of a statement stops before it begins, until it is let go."""

    def __init__(self, patch: pytest.MonkeyPatch, statement: str) -> None:
        self.is_there, self.may_go = asyncio.Event(), asyncio.Event()
        fetch = Connection.fetch

        async def held(one: Connection, name: str, /, **told: Any) -> Any:
            if name == statement and not self.is_there.is_set():
                self.is_there.set()
                await self.may_go.wait()
            return await fetch(one, name, **told)

        patch.setattr(Connection, "fetch", held)


# --- limits ---------------------------------------------------------------------------------------


def test_a_limit_is_not_charged_for_a_job_that_somebody_else_has_locked(url: str) -> None:
    async def use(world: World) -> None:
        first, second = await world.push(), await world.push()
        await world.limit("default", rate=1, period_us=HOUR)
        with psycopg.connect(url) as theirs:
            theirs.execute("SELECT FROM detent.jobs WHERE id = %s FOR UPDATE", [first.id])
            assert await world.claim_ids(2) == [second.id]
        [limited] = await world.store.limits()
        assert limited.used.starts == 1
        world.clock.move(HOUR)
        assert await world.claim_ids(2) == [first.id]

    in_world(url, use)


def test_turns_and_limits_stay_free_when_nothing_could_be_taken(url: str) -> None:
    async def use(world: World) -> None:
        job = await world.push()
        await world.limit("default", LimitKind.QUEUE, rate=1, period_us=HOUR)
        with psycopg.connect(url) as theirs:
            theirs.execute("SELECT FROM detent.jobs WHERE id = %s FOR UPDATE", [job.id])
            claimed = await world.wish()
            assert (claimed.jobs, claimed.retry_at) == ((), None)
        assert await world.claim_ids(1) == [job.id]

    in_world(url, use)
