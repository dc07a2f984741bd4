"""An address may name several servers: whichever takes writes is used, and none holds us up."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from detent import stores
from detent.errors import BadUrl, StoreRefused, StoreUnavailable, UnsupportedStore
from detent.stores.postgres import address
from detent.stores.postgres.connection import open_connection
from tests.contract.world import World
from tests.postgres.running import in_world, sql
from tools.postgres import QUICK, Server


def port() -> int:
    """A port where nobody is."""
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(**QUICK, port=str(port())) as one:
        stores.run_migrations(one.url("postgres"))
        yield one


@pytest.fixture(scope="module")
def place(server: Server) -> str:
    """Where it is, as addresses say it."""
    return server.url("").partition("@")[2].strip("/")


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who takes calls and never says a word, as a host without power never does."""
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        yield f"127.0.0.1:{one.getsockname()[1]}"


async def used(world: World) -> None:
    """It can be worked with."""
    await world.push()
    assert len(await world.claim(1)) == 1


def test_a_host_that_says_nothing_does_not_keep_us_from_the_next(silent: str, place: str) -> None:
    in_world(f"postgresql://postgres@{silent},{place}/postgres", used)


def test_hosts_may_be_named_in_the_query(server: Server, place: str) -> None:
    sql(server.url("postgres"), "CREATE DATABASE asked")
    host, _, number = place.partition(":")
    told = f"host=127.0.0.1,{host}&port={port()},{number}"
    in_world(f"postgresql://postgres@/asked?{told}", used)


def test_a_server_that_takes_no_writes_is_passed_over(server: Server, place: str) -> None:
    sql(server.url("postgres"), "CREATE DATABASE replica")
    sql(server.url("postgres"), "ALTER DATABASE replica SET default_transaction_read_only = on")
    reads = f"postgresql://postgres@{place},{place}/replica"
    with pytest.raises(StoreUnavailable, match=r"read_write.*; .*read_write"):
        in_world(reads, used)
    with pytest.raises(UnsupportedStore, match="read-only"):
        in_world(f"postgresql://postgres@{place}/replica", used)


def test_what_each_of_them_said_is_told() -> None:
    nobody = f"127.0.0.1:{port()},127.0.0.1:{port()}"
    with pytest.raises(StoreUnavailable, match=r"Connect call failed.*; .*Connect call failed"):
        in_world(f"postgresql://postgres@{nobody}/postgres", used)


def test_one_that_refuses_us_knows_more_than_one_that_is_away(place: str) -> None:
    url = f"postgresql://postgres@127.0.0.1:{port()},{place}/nowhere"
    with pytest.raises(StoreRefused, match="nowhere"):
        in_world(url, used)


@pytest.mark.parametrize("word", ["standby", "prefer-standby", "read-only"])
def test_an_address_of_servers_that_take_no_writes_is_refused(word: str) -> None:
    with pytest.raises(BadUrl, match="takes no writes; say read-write"):
        stores.open(f"postgresql://a,b/c?target_session_attrs={word}")


def test_ports_that_fit_no_hosts_are_refused() -> None:
    with pytest.raises(BadUrl, match="2 ports for 3 hosts"):
        address.read("postgresql:///c?host=a,b,d&port=1,2")


def test_each_host_has_an_address_of_its_own() -> None:
    read = address.read(
        "postgresql://u:p%40@a:1,[::1]:2/d?connections=2&target_session_attrs=primary"
    )
    rest = "/d?target_session_attrs=primary"
    assert address.each(read.url) == [
        f"postgresql://u:p%40@a:1{rest}",
        f"postgresql://u:p%40@[::1]:2{rest}",
    ]
    assert address.each("postgresql:///d?host=/tmp") == ["postgresql:///d?host=/tmp"]


def test_the_system_watches_over_a_line_that_goes_far(server: Server) -> None:
    async def look() -> list[int]:
        one = await open_connection(address.read(server.url("postgres")))
        line = one.driver._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # noqa: SLF001
        found = [
            line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
        ]
        await one.close()
        return found

    assert asyncio.run(look()) == [1, 15_000]
