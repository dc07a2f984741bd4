"""The journal of a fleet on its way to the store, when the way is not clear."""

from __future__ import annotations

import asyncio
from pathlib import Path

from detent import Detent
from detent.app.fleet.shipping import Shipping
from detent.runtime.supervisor.function import FunctionBody, WorkerContext
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.spec import Spec
from detent.runtime.supervisor.supervisor import Supervisor
from detent.runtime.supervisor.tree import Tree
from tests.waiting import until


async def _forever(_: WorkerContext) -> None:
    await asyncio.Event().wait()


def test_a_disk_that_was_full_is_not_the_end_of_shipping(tmp_path: Path) -> None:
    with Detent("memory:") as app:
        asyncio.run(_ship_across_a_full_disk(app, Journal(tmp_path / "journal")))


async def _ship_across_a_full_disk(app: Detent, journal: Journal) -> None:
    engine = await app.bridge.reach(app.engine())
    one = Supervisor(Tree(journal), [Spec("one", lambda: FunctionBody(_forever), kind="function")])
    shipping = Shipping(one, engine, app.bridge)
    await one.start()
    db = journal._db  # noqa: SLF001 - as a full disk would
    db.execute("PRAGMA query_only = ON")
    running = asyncio.create_task(shipping.run())
    try:
        await until(lambda: shipping._sent > 0 or running.done())  # noqa: SLF001
        db.execute("PRAGMA query_only = OFF")
        await one.stop()
        await until(lambda: journal.cursor("store") > 0 or running.done())
        assert not running.done()
    finally:
        running.cancel()
        journal.close()


def test_another_store_than_the_last_is_told_from_the_beginning(tmp_path: Path) -> None:
    """As when the file of the store was deleted, or put back from a backup."""
    with Detent("memory:") as first, Detent("memory:") as second:
        asyncio.run(_ship_to_both(first, second, Journal(tmp_path / "journal")))


async def _ship_to_both(first: Detent, second: Detent, journal: Journal) -> None:
    one = Supervisor(Tree(journal), [Spec("one", lambda: FunctionBody(_forever), kind="function")])
    engines = [await app.bridge.reach(app.engine()) for app in (first, second)]
    await one.start()
    await Shipping(one, engines[0], first.bridge).ship()
    await one.stop()
    await Shipping(one, engines[1], second.bridge).ship()
    [gone] = await second.bridge.reach(engines[1].workers.listed(gone=True))
    assert await second.bridge.reach(engines[1].workers.history(gone.id)) == journal.history(
        gone.id
    )
    journal.close()
