"""Lists of small records are whole, also where there are more than one page of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec

from detent import stores
from detent.engine.directives import KIND as DIRECTIVE
from detent.engine.directives import Directive, Verb
from detent.engine.engine import Engine
from detent.engine.engines import KIND as ENGINE
from detent.engine.engines import Seated
from detent.engine.paging import RECORDS_PAGE
from detent.stores.api import Record
from detent.surfaces.engines.kinds import KIND as ENGINE_TYPE
from detent.surfaces.ojs.registry import BY_TYPE, BY_URI
from detent.surfaces.ojs.system import POOL, Pool
from detent.surfaces.ojs.workers import KIND as WORKER
from detent.surfaces.ojs.workers import Worker
from tests.surfaces.server import Client, on, running

MANY = RECORDS_PAGE + 3
NAMES = [f"n{number:09}" for number in range(MANY)]


async def fill(engine: Engine, kind: str, told: dict[str, Any]) -> None:
    """Records of that kind, by their names."""
    records = [
        Record(kind, name, 1, msgspec.json.encode(one).decode()) for name, one in told.items()
    ]
    assert all(await asyncio.gather(*map(engine.put, records)))


async def test_what_a_supervisor_is_told_and_what_engines_take() -> None:
    async with stores.open("memory:") as store:
        engine = Engine(store)
        wishes = {n: Directive(id=n, supervisor="s", verb=Verb.RESTART) for n in NAMES}
        await fill(engine, DIRECTIVE, wishes)
        assert [one.id for one in await engine.directives.waiting("s")] == NAMES
        seats = {n: Seated(boot="", seat="", types=(n,), queues=(), capacity=1) for n in NAMES}
        await fill(engine, ENGINE, seats)
        assert await engine.engines.types("") == frozenset(NAMES)


def test_what_a_server_lists(tmp_path: Path) -> None:
    schema = {"schema": {"type": "object"}, "created_at": 0}

    async def work(engine: Engine) -> None:
        await fill(engine, POOL, {n: Pool(n) for n in NAMES})
        await fill(engine, WORKER, {n: Worker(id=n, started_at=0, last_at=0) for n in NAMES})
        await fill(engine, BY_URI, {n: {**schema, "uri": n} for n in NAMES})
        versions = {f"a@{n:09}": {**schema, "type": "a", "version": n} for n in range(1, MANY + 1)}
        await fill(engine, BY_TYPE, {**versions, "b@000000001": schema})
        await fill(engine, ENGINE_TYPE, {name: {} for name in NAMES})

    url = f"sqlite:///{tmp_path}/detent.db"
    on(url, work)
    with running(url) as server:
        client = Client(server.port)
        assert len(client.get("/admin/pools").ok()["pools"]) == MANY
        assert len(client.get("/schemas").ok()["schemas"]) == MANY
        assert client.get("/admin/schemas/a").ok()["version"] == MANY
        assert len(client.get("/admin/schemas/a/versions").ok()["versions"]) == MANY
        assert client.get("/admin/workers?per_page=1").ok()["pagination"]["total"] == MANY
        client.close()
        with urlopen(f"http://127.0.0.1:{server.port}/engine/types") as answer:
            assert len(json.load(answer)["jobTypes"]) == MANY
