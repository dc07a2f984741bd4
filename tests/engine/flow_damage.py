"""A SQLite file with workflows, of which a part was forgotten, and the ways to damage it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from detent import stores
from detent.engine.verify import Check
from detent.lifecycle import workflow as w
from detent.stores.api import Retention
from tests.contract.flowing import chain, completing, job
from tests.contract.making import SECOND, Clock
from tests.contract.world import World
from tests.engine.damage import NAMES, Damage
from tests.sqlite.processes import url_of

EVENTS_IN_A_BLOCK = 6


def fill(path: Path) -> None:
    """Make the file."""
    asyncio.run(_fill(path))


async def _fill(path: Path) -> None:
    clock = Clock()
    async with stores.open(url_of(path), clock=clock) as store:
        world = World(store, clock)
        await _end_soon(world)
        await _seal(world)
        _keep(path)
        clock.move(SECOND)
        assert await world.prune(Retention("completed", clock.now, queue="brief")) == 3
        await chain(world, "a", "b", jobs=2)
        [first, _] = await world.claim(2)
        await world.must(completing(world, first))
        await world.push(id="stays")
        await _seal(world)
        await world.push(id="unsealed")
        await world.push(id="last")


async def _end_soon(world: World) -> None:
    """A workflow that ends, and two jobs of none; three of the four will be forgotten."""
    new = [job(world, "s", "s1", "over", queue="brief"), job(world, "s", "s2", "over")]
    await world.make_flow("over", w.chain("s"), *new)
    for name in ("gone-1", "gone-2"):
        await world.push(id=name, queue="brief")
    for stored in await world.claim(4, queues=("brief", "default")):
        await world.must(completing(world, stored))


async def _seal(world: World) -> None:
    while await world.store.seal(limit=EVENTS_IN_A_BLOCK):
        pass


def _keep(path: Path) -> None:
    """A copy of all events, of which some will be forgotten."""
    with sqlite3.connect(path) as connection:
        connection.execute(_SQL("CREATE TABLE kept AS SELECT * FROM {events}"))
    connection.close()


def _SQL(text: str) -> str:  # noqa: N802 - it stands before SQL
    return text.format_map(NAMES)


_TALLY = "UPDATE {steps} SET tally = json_set(tally, %s) WHERE id = '%s'"
_FORGET_JOB = (
    "PRAGMA foreign_keys = OFF; DELETE FROM {bodies} WHERE seq = (SELECT seq FROM {jobs} WHERE"
    " id = '%s'); DELETE FROM {jobs} WHERE id = '%s'; DELETE FROM {events} WHERE record = '%s'"
)

DAMAGES: dict[str, Damage] = {
    "a tally that is too high": Damage(
        _TALLY % ("'$.completed', 2, '$.total', 3", "a"),
        *(Check.TALLY, r"a version \d", "counts 2 completed, but 1 of its jobs are"),
    ),
    "a tally that is too low": Damage(
        _TALLY % ("'$.pending', 1, '$.total', 1", "b"),
        *(Check.TALLY, r"b version \d", "counts 1 pending, but 2 of its jobs are"),
    ),
    "a tally that is gone": Damage(
        "UPDATE {steps} SET tally = NULL WHERE id = 'b'",
        *(Check.TALLY, r"b version \d", "counts 0 pending, but 2 of its jobs are"),
    ),
    "a tally that does not add up": Damage(
        _TALLY % ("'$.completed', 7", "a"),
        *(Check.FLOW, r"w version \d", "words of a tally add up"),
    ),
    "a tally of more than were ever forgotten": Damage(
        _TALLY % ("'$.completed', 20, '$.total', 20", "s"),
        *(Check.TALLY, r"s version \d", "counts 20 completed, but 1 of its jobs are"),
    ),
    "a tally of jobs that run in an ended workflow": Damage(
        _TALLY % ("'$.completed', 1, '$.in_progress', 1", "s"),
        *(Check.TALLY, r"s version \d", "counts 1 in_progress, but 0 of its jobs are"),
    ),
    "a tally that is no JSON": Damage(
        "UPDATE {steps} SET tally = '[' WHERE id = 'a'",
        *(Check.ROW, "w", "a step of workflow w cannot be read"),
    ),
    "the record of a step": Damage(
        "UPDATE {steps} SET record = json_set(record, '$.state', 'completed') WHERE id = 'a'",
        *(Check.HISTORY, r"a version \d", "differs in state"),
    ),
    "the version of a step": Damage(
        "UPDATE {steps} SET record = json_set(record, '$.version', 9) WHERE id = 'a'",
        *(Check.HISTORY, "a version 9", "its history ends at version"),
    ),
    "the record of a step is no JSON": Damage(
        "UPDATE {steps} SET record = '7' WHERE id = 'a'",
        *(Check.ROW, "w", "a step of workflow w cannot be read"),
    ),
    "the record of a workflow": Damage(
        "UPDATE {workflows} SET record = json_set(record, '$.created_at', 5) WHERE id = 'w'",
        *(Check.HISTORY, r"w version \d", "differs in created_at"),
    ),
    "the record of a workflow is no JSON": Damage(
        "UPDATE {workflows} SET record = '{{' WHERE id = 'w'",
        *(Check.ROW, "w", "the record of workflow w cannot be read"),
    ),
    "the last event of a workflow is gone": Damage(
        "DELETE FROM {events} WHERE pos = (SELECT max(pos) FROM {events} WHERE record = 'w')",
        *(Check.HISTORY, r"w version \d", "its history ends at version"),
    ),
    "the history of a step is gone": Damage(
        "DELETE FROM {events} WHERE record = 'b'",
        *(Check.HISTORY, r"b version \d", "it has no history"),
    ),
    "a second end of a workflow": Damage(
        "INSERT INTO {events} SELECT pos + 1000, tenant, record, version + 1, at, name, source,"
        " target, actor, actor_id, command_id, kind, rest FROM {events} WHERE record = 'over'"
        " ORDER BY version DESC LIMIT 1",
        *(Check.HISTORY, r"over version \d", "history goes on to version"),
    ),
    "a step is gone, and its jobs are not": Damage(
        "DELETE FROM {steps} WHERE id = 'b'",
        *(Check.FLOW, "b1 version 1", "names step b of workflow w, which is not there"),
    ),
    "a workflow is gone, and its jobs are not": Damage(
        "PRAGMA foreign_keys = OFF; DELETE FROM {steps} WHERE workflow = 'w';"
        " DELETE FROM {workflows} WHERE id = 'w'",
        *(Check.FLOW, r"a1 version \d", "names step a of workflow w, which is not there"),
    ),
    "a job points to a step that does not exist": Damage(
        "UPDATE {jobs} SET step = 'nowhere' WHERE id = 'b1'",
        *(Check.HISTORY, "b1 version 1", "differs in step"),
    ),
    "a step that nobody made": Damage(
        "INSERT INTO {steps} SELECT tenant, 'c', workflow, version, state,"
        " json_set(record, '$.id', 'c', '$.order', 3), NULL, 0, 0 FROM {steps} WHERE id = 'b'",
        *(Check.HISTORY, r"c version \d", "it has no history"),
    ),
    "a job is gone from a workflow that lives": Damage(
        _FORGET_JOB % ("b2", "b2", "b2"),
        *(Check.TALLY, r"b version \d", "counts 2 pending, but 1 of its jobs are"),
    ),
    "a job is gone as if forgotten, but counted": Damage(
        _FORGET_JOB % ("stays", "stays", "stays"),
        *(Check.COUNT, "the counts", "has 4 jobs available, but 5 are counted"),
    ),
    "a leaf was changed": Damage(
        "UPDATE {leaves} SET leaf = zeroblob(32) WHERE pos = (SELECT max(pos) FROM {leaves})",
        *(Check.SEAL, r"block \d", "the leaves of positions .* are not those that were sealed"),
    ),
    "the leaf of a forgotten event was changed": Damage(
        "UPDATE {leaves} SET leaf = zeroblob(32) WHERE pos ="
        " (SELECT min(pos) FROM kept WHERE record = 'gone-1')",
        *(Check.SEAL, r"block \d", "the leaves of positions .* are not those that were sealed"),
    ),
    "a leaf is gone": Damage(
        "DELETE FROM {leaves} WHERE pos = 3",
        *(Check.SEAL, "block 1", "the leaves of positions 1 to 6 .* are not those"),
    ),
    "leaves that no block has": Damage(
        "INSERT INTO {leaves} SELECT max(pos) + 1, zeroblob(32) FROM {leaves}",
        *(Check.SEAL, "unsealed version 1", "not the event that was sealed"),
    ),
    "leaves after the end of everything": Damage(
        "INSERT INTO {leaves} SELECT max(pos) + 9, zeroblob(32) FROM {leaves}",
        *(Check.SEAL, r"block \d", "but leaves go on to"),
    ),
    "a sealed event of a record that is there is gone": Damage(
        "DELETE FROM {events} WHERE record = 's2' AND version = 2",
        *(Check.HISTORY, "s2 version 3", "version 2 is missing"),
    ),
    "a sealed event of a step was changed": Damage(
        "UPDATE {events} SET command_id = 'other' WHERE record = 's' AND version = 1",
        *(Check.SEAL, "s version 1", "not the event that was sealed"),
    ),
    "a record is gone, and its sealed events are not": Damage(
        "PRAGMA foreign_keys = OFF; DELETE FROM {jobs} WHERE id = 'stays'",
        *(Check.FEED, "stays version 1", "no such record"),
    ),
    "forgotten events are back": Damage(
        "INSERT INTO {events} SELECT * FROM kept WHERE record = 'gone-1'",
        *(Check.FEED, "gone-1 version 1", "no such record"),
    ),
    "a forgotten event is back as another": Damage(
        "INSERT INTO {events} SELECT pos, tenant, record, version, at, name, source, target, actor,"
        " 'eve', command_id, kind, rest FROM kept WHERE record = 'gone-1' AND version = 1",
        *(Check.SEAL, "gone-1 version 1", "not the event that was sealed"),
    ),
    "what is not sealed is gone without a trace": Damage(
        _FORGET_JOB % ("unsealed", "unsealed", "unsealed"),
        *(Check.FEED, r"position \d+ of the feed", "no event stands there"),
    ),
}
