"""A server that dies for good, and its standby, which takes over."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from detent.errors import UnsupportedStore
from tests.contract.world import World
from tests.postgres.running import Workers, durable, in_world, nothing_lost_or_doubled, sql
from tests.postgres.test_hosts import port
from tests.waiting import eventually
from tools.postgres import Server

pytestmark = pytest.mark.slow
_FOLLOWED = "SELECT sync_state FROM pg_stat_replication"


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Server, Server]]:
    """A server whose commits wait for its standby."""
    with durable(port=str(port())) as first, Server(first, port=str(port())) as second:
        url = first.url("postgres")
        sql(url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        sql(url, "SELECT pg_reload_conf()")
        eventually(lambda: sql(url, _FOLLOWED) == [("sync",)])
        yield first, second


def test_a_standby_is_refused_by_name(pair: tuple[Server, Server]) -> None:
    async def use(world: World) -> None:
        raise AssertionError(world)

    with pytest.raises(UnsupportedStore, match="read-only, a replica perhaps"):
        in_world(pair[1].url("postgres"), use)


def test_nothing_acknowledged_is_lost_or_doubled_by_a_failover(pair: tuple[Server, Server]) -> None:
    first, second = pair
    places = [one.url("").partition("@")[2].strip("/") for one in pair]

    async def take_over(_: Workers) -> None:
        os.kill(first.process, signal.SIGKILL)
        await asyncio.to_thread(second.control, "promote")

    nothing_lost_or_doubled(f"postgresql://postgres@{','.join(places)}/postgres", take_over)
