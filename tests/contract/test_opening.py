"""Opening by address, and what a store says before it is open and after it is closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from detent import stores
from detent.errors import BadUrl, StoreClosed
from detent.stores.api import Line, Store, WorkerRow
from detent.stores.select import Filter
from tests.contract.backends import Backend
from tests.contract.making import START, Clock, Maker


async def _all(store: Store) -> object:
    return await store.keys()


CALLS: dict[str, Callable[[Store], Awaitable[object]]] = {
    "step": lambda store: store.step([Maker(Clock()).pushed()], now=START),
    "take_due": lambda store: store.take_due(now=START, limit=1),
    "beat": lambda store: store.beat([WorkerRow("w", START)], now=START),
    "declare_lost": lambda store: store.declare_lost(["w"], now=START),
    "extend": lambda store: store.extend([("L", START)], now=START),
    "take_due_records": lambda store: store.take_due_records(now=START, limit=1),
    "note": lambda store: store.note([], now=START),
    "prune": lambda store: store.prune([], now=START),
    "flows": lambda store: store.flows([("", "a")]),
    "find_workflows": lambda store: store.find_workflows(),
    "records": lambda store: store.records("schedule"),
    "record": lambda store: store.record([("schedule", "", "a")]),
    "limits": lambda store: store.limits(),
    "gates": lambda store: store.gates(),
    "overdue": lambda store: store.overdue(now=START),
    "leaves": lambda store: store.leaves(),
    "seal": lambda store: store.seal(),
    "append_logs": lambda store: store.append_logs([(("", "a"), Line(1, "x"))]),
    "get": lambda store: store.get([("", "a")]),
    "find": lambda store: store.find(Filter()),
    "held_by": lambda store: store.held_by("w", 1),
    "counts": lambda store: store.counts(),
    "history": lambda store: store.history(("", "a")),
    "histories": lambda store: store.histories([("", "a")]),
    "leases": lambda store: store.leases(["L"]),
    "feed": lambda store: store.feed(),
    "blocks": lambda store: store.blocks(),
    "logs": lambda store: store.logs(("", "a")),
    "log_tail": lambda store: store.log_tail(),
    "wait": lambda store: store.wait(1.0),
    "keys": _all,
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_store_that_is_not_open_says_so(backend: Backend, tmp_path: Path, call: str) -> None:
    async def use() -> None:
        store = backend(tmp_path, Clock())
        with pytest.raises(StoreClosed):
            await CALLS[call](store)
        async with store:
            await CALLS["get"](store)
        with pytest.raises(StoreClosed) as refused:
            await CALLS[call](store)
        assert refused.value.code == "store_closed"

    asyncio.run(use())


def test_who_waits_when_the_store_is_closed_is_let_go(backend: Backend, tmp_path: Path) -> None:
    async def use() -> bool:
        async with backend(tmp_path, Clock()) as store:
            waiting = asyncio.ensure_future(store.wait(30.0))
            for _ in range(5):
                await asyncio.sleep(0)
        return await waiting

    assert asyncio.run(use()) is False


def test_an_error_inside_is_not_swallowed(backend: Backend, tmp_path: Path) -> None:
    async def use() -> None:
        async with backend(tmp_path, Clock()) as store:
            await store.get([])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(use())


def test_calls_under_way_at_closing_are_answered_or_refused(
    backend: Backend, tmp_path: Path
) -> None:
    async def use() -> None:
        clock = Clock()
        make, store = Maker(clock), backend(tmp_path, clock)
        async with store:
            calls = [store.step([make.pushed()], now=START) for _ in range(20)]
            under_way = asyncio.gather(*calls, return_exceptions=True)
            await asyncio.sleep(0)
        for answer in await under_way:
            assert not isinstance(answer, BaseException) or isinstance(answer, StoreClosed)

    asyncio.run(use())


@pytest.mark.parametrize(
    ("url", "near"),
    [
        ("sqlit:///x.db", "sqlite"),
        ("sqlite3:///x.db", "sqlite"),
        ("Memory:", "memory"),
        ("mem:", "memory"),
        ("kafka://host", None),
        ("mysql://host", None),
        ("memory", "memory"),
        ("", None),
        ("/var/lib/detent.db", None),
    ],
)
def test_an_address_that_names_no_store_is_refused_with_a_hint(url: str, near: str | None) -> None:
    with pytest.raises(BadUrl) as refused:
        stores.open(url)
    assert refused.value.code == "bad_url"
    assert refused.value.fields["near"] == near
    assert near is None or f"Did you mean {near}:" in refused.value.message


def test_a_file_without_a_scheme_is_told_its_address() -> None:
    with pytest.raises(BadUrl, match=r"Did you mean sqlite:jobs\.db\?"):
        stores.open("jobs.db")
    with pytest.raises(BadUrl, match=r"a text like 'sqlite:jobs\.db', not a PosixPath"):
        stores.open(Path("jobs.db"))  # type: ignore[arg-type]


def test_three_slashes_are_no_way_to_say_here() -> None:
    """In SQLAlchemy and Django they are."""
    here, there = "sqlite:nobodys-detent.db", "sqlite:////nobodys-detent.db"
    with pytest.raises(BadUrl, match=f"write {here} for this one, or {there} for that one"):
        stores.open("sqlite:///nobodys-detent.db")
    assert stores.file_of(there) == Path("//nobodys-detent.db")
    assert stores.file_of("sqlite:/nobodys-detent.db") == Path("/nobodys-detent.db")


def test_a_store_in_memory_has_no_path() -> None:
    with pytest.raises(BadUrl):
        stores.open("memory:///x")


def test_without_a_clock_the_systems_is_used() -> None:
    async def use() -> None:
        async with stores.open("memory:") as store:
            assert await store.take_due(now=START, limit=1) == []

    asyncio.run(use())


def test_no_driver_is_imported_that_nobody_chose() -> None:
    """What is not installed must not be missed: only the standard library may be there unasked."""
    code = "import sys; from detent import stores; stores.open('memory:'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    loaded = set(run.stdout.split())
    assert "detent.stores.memory" in loaded
    assert not loaded & {"detent.stores.postgres", "asyncpg", "psycopg", "sqlalchemy", "django"}
