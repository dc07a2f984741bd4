"""A SQLite file with a bit of everything in it, and the ways to damage it behind the store's back.

Names of tables stand here once; everything that is damaged is described by what it does.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from detent import stores
from detent.engine.verify import Check
from detent.lifecycle import job as j
from detent.lifecycle.seal import Block, leaf, seal
from detent.stores.api import Failure
from tests.contract.making import NEVER, SECOND, USER, WORKER, Clock
from tests.contract.world import World
from tests.sqlite.processes import url_of

NAMES = {
    "jobs": "detent_jobs",
    "events": "detent_events",
    "bodies": "detent_bodies",
    "leases": "detent_leases",
    "counters": "detent_counters",
    "blocks": "detent_blocks",
    "leaves": "detent_leaves",
    "workflows": "detent_workflows",
    "steps": "detent_steps",
}
EVENTS_IN_A_BLOCK = 5


# --- the store that is damaged --------------------------------------------------------------------


def fill(path: Path) -> None:
    """Make the file."""
    asyncio.run(_fill(path))


async def _fill(path: Path) -> None:
    clock = Clock()
    async with stores.open(url_of(path), clock=clock) as store:
        world = World(store, clock)
        done = await world.claimed(id="done")
        clock.move(SECOND)
        await world.do(done, j.Complete(lease=done.lease, digest="d" * 64), WORKER)
        await _fail(world)
        wired = await world.claimed(id="was-wired", wire=True, lease_us=SECOND)
        await world.do(wired, j.Complete(lease=wired.lease), WORKER)
        await world.claimed(id="wired", wire=True, lease_us=SECOND)
        cancelled = await world.push(id="cancelled", queue="other")
        await world.do(cancelled, j.Cancel(), USER, reason="because")
        for number in range(25):
            await world.push(id=f"waits-{number:02}", tenant="t", queue="later")
        while await store.seal(limit=EVENTS_IN_A_BLOCK):
            pass
        await world.push(id="unsealed")


async def _fail(world: World) -> None:
    job = await world.claimed(id="failed")
    told = {"failure": Failure(1, world.now, "boom"), "lease": job.lease}
    command = j.Fail(lease=job.lease, code="boom")
    await world.do(job, command, WORKER, verdict=NEVER, store=told)


# --- how it is damaged ----------------------------------------------------------------------------


class Damage(NamedTuple):
    """SQL that somebody runs, and what must be said about it."""

    sql: str | Callable[[sqlite3.Connection], None]
    check: Check
    where: str
    why: str


def plant(path: Path, damage: Damage) -> None:
    """Do the damage, with everything out of the way that would prevent it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    _disarm(connection)
    if isinstance(damage.sql, str):
        connection.executescript(damage.sql.format_map(NAMES))
    else:
        damage.sql(connection)
    connection.close()


def _disarm(connection: sqlite3.Connection) -> None:
    found = connection.execute(
        "SELECT type, name FROM sqlite_schema WHERE type = 'trigger'"
        " OR (type = 'index' AND tbl_name = ? AND sql IS NOT NULL)",
        (NAMES["events"],),
    ).fetchall()
    for kind, name in found:
        connection.execute(f"DROP {kind} {name}")


def _swap_positions(connection: sqlite3.Connection) -> None:
    """The claim of a job comes before its birth, as far as the feed is concerned."""
    born = "SELECT pos FROM {events} WHERE record = 'done' ORDER BY version LIMIT 2"
    (first,), (second,) = connection.execute(born.format_map(NAMES)).fetchall()
    move = "UPDATE {events} SET pos = ? WHERE pos = ?".format_map(NAMES)
    for change in ((-1, first), (first, second), (second, -1)):
        connection.execute(move, change)


def _reseal_first_block(connection: sqlite3.Connection) -> None:
    """Change a sealed event and seal its block again: the next block still knows the old head."""
    change = "UPDATE {events} SET actor_id = 'eve' WHERE record = 'done' AND version = 1"
    connection.execute(change.format_map(NAMES))
    leaves = asyncio.run(_leaves_of_first(connection))
    relay = "UPDATE {leaves} SET leaf = ? WHERE pos = ?".format_map(NAMES)
    connection.executemany(relay, [(one, pos) for pos, one in leaves.items()])
    reseal = "UPDATE {blocks} SET root = ? WHERE number = 1"
    root = seal(list(leaves.values()), None, None).root
    connection.execute(reseal.format_map(NAMES), (root,))


async def _leaves_of_first(connection: sqlite3.Connection) -> dict[int, bytes]:
    [(_, _, path)] = connection.execute("PRAGMA database_list").fetchall()
    async with stores.open(url_of(Path(path))) as store:
        block: Block = (await store.blocks())[0]
        feed = await store.feed(block.first_pos - 1, block.count)
    return {fed.pos: leaf(fed.event) for fed in feed}


_COPY = (
    "INSERT INTO {events} (tenant, record, version, at, name, source, target, actor, actor_id,"
    " command_id, kind, rest) SELECT tenant, record, %s, at, name, source, target, actor,"
    " actor_id, command_id, kind, rest FROM {events} WHERE record = '%s' AND version = %s"
)

DAMAGES: dict[str, Damage] = {
    "an event happened earlier": Damage(
        "UPDATE {events} SET at = at - 5000000 WHERE record = 'done' AND version = 3",
        *(Check.HISTORY, "done version 3", "time"),
    ),
    "an event is called something else": Damage(
        "UPDATE {events} SET name = 'lose' WHERE record = 'done' AND version = 3",
        *(Check.HISTORY, "done version 3", "may not lose"),
    ),
    "an event leads elsewhere": Damage(
        "UPDATE {events} SET target = 'cancelled' WHERE record = 'done' AND version = 3",
        *(Check.HISTORY, "done version 3", "complete from active to cancelled"),
    ),
    "an event was moved by somebody who may not": Damage(
        "UPDATE {events} SET actor = 'user' WHERE record = 'done' AND version = 2",
        *(Check.HISTORY, "done version 2", "user may not claim"),
    ),
    "an event has a charge that its record lacks": Damage(
        "UPDATE {events} SET rest = json_set(rest, '$.charged', 'none')"
        " WHERE record = 'failed' AND version = 3",
        *(Check.HISTORY, "failed version 3", "failures|differs|charge"),
    ),
    "an event in the middle is gone": Damage(
        "DELETE FROM {events} WHERE record = 'done' AND version = 2",
        *(Check.HISTORY, "done version 3", "version 2 is missing"),
    ),
    "the last event is gone": Damage(
        "DELETE FROM {events} WHERE record = 'done' AND version = 3",
        *(Check.HISTORY, "done version 3", "ends at version 2"),
    ),
    "a whole history is gone": Damage(
        "DELETE FROM {events} WHERE record = 'done'",
        *(Check.HISTORY, "done version 3", "no history"),
    ),
    "a second end": Damage(
        _COPY % (4, "done", 3),
        *(Check.HISTORY, "done version 4", "goes on to version 4, but the record stands at 3"),
    ),
    "a second end that the record admits": Damage(
        _COPY % (4, "done", 3) + "; UPDATE {jobs} SET version = 4 WHERE id = 'done'",
        *(Check.HISTORY, "done version 4", "starts from active"),
    ),
    "a version twice": Damage(
        _COPY % (2, "done", 2),
        *(Check.HISTORY, "done version 2", "version 3 is missing"),
    ),
    "an event of nobody": Damage(
        "INSERT INTO {events} (tenant, record, version, at, name, source, target, actor, actor_id,"
        " command_id, kind) VALUES ('', 'ghost', 1, 1, 'enqueue', NULL, 'available', 'user', '',"
        " 'c', 'job')",
        *(Check.FEED, "ghost version 1", "no such record"),
    ),
    "two events have changed places": Damage(
        _swap_positions, Check.FEED, "done version 2", "before the version that it follows"
    ),
    "a counter of the record": Damage(
        "UPDATE {jobs} SET attempt = 0 WHERE id = 'done'",
        *(Check.HISTORY, "done version 3", "differs in attempt"),
    ),
    "the state of the record": Damage(
        "UPDATE {jobs} SET state = 'discarded' WHERE id = 'done'",
        *(Check.HISTORY, "done version 3", "differs in state"),
    ),
    "the queue of the record": Damage(
        "UPDATE {jobs} SET queue = 'stolen' WHERE id = 'waits-07'",
        *(Check.HISTORY, "waits-07 of tenant t version 1", "differs in queue"),
    ),
    "the version of the record": Damage(
        "UPDATE {jobs} SET version = 9 WHERE id = 'done'",
        *(Check.HISTORY, "done version 9", "ends at version 3"),
    ),
    "the record is gone": Damage(
        "PRAGMA foreign_keys = OFF; DELETE FROM {jobs} WHERE id = 'cancelled'",
        *(Check.FEED, "cancelled version 1", "no such record"),
    ),
    "a state that does not exist": Damage(
        "UPDATE {jobs} SET state = 'asleep' WHERE id = 'done'",
        *(Check.ROW, "done", "cannot be read.*asleep"),
    ),
    "the body is gone": Damage(
        "DELETE FROM {bodies} WHERE seq = (SELECT seq FROM {jobs} WHERE id = 'done')",
        *(Check.ROW, "done", "has no body"),
    ),
    "the tags are no list": Damage(
        "UPDATE {bodies} SET tags = '7' WHERE seq = (SELECT seq FROM {jobs} WHERE id = 'done')",
        *(Check.ROW, "done", "body of done cannot be read"),
    ),
    "an event is no JSON": Damage(
        "UPDATE {events} SET rest = '{{' WHERE record = 'done' AND version = 2",
        *(Check.ROW, "done", "event at position 2"),
    ),
    "an event is no text": Damage(
        "UPDATE {events} SET actor_id = CAST(x'ff' AS TEXT) WHERE record = 'done' AND version = 2",
        *(Check.ROW, "done", "Could not decode"),
    ),
    "an actor that does not exist": Damage(
        "UPDATE {events} SET actor = 'god' WHERE record = 'done' AND version = 2",
        *(Check.ROW, "done", "event at position 2.*god"),
    ),
    "an instant that is a word": Damage(
        "UPDATE {events} SET at = 'noon' WHERE record = 'done' AND version = 2",
        *(Check.ROW, "done", "cannot be judged"),
    ),
    "a sealed event was done by somebody else": Damage(
        "UPDATE {events} SET actor_id = 'eve' WHERE record = 'done' AND version = 1",
        *(Check.SEAL, "done version 1", "not the event that was sealed at position 1 "),
    ),
    "a sealed event has another digest": Damage(
        "UPDATE {events} SET rest = json_set(rest, '$.digest', 'other')"
        " WHERE record = 'done' AND version = 3",
        *(Check.SEAL, "done version 3", "not the event that was sealed"),
    ),
    "a sealed reason was rewritten": Damage(
        "UPDATE {events} SET rest = json_set(rest, '$.reason', 'no reason')"
        " WHERE record = 'cancelled' AND version = 2",
        *(Check.SEAL, "cancelled version 2", "not the event that was sealed"),
    ),
    "the root of a block": Damage(
        "UPDATE {blocks} SET root = replace(hex(zeroblob(32)), '00', 'ab') WHERE number = 2",
        *(Check.SEAL, "block 2", "not those that were sealed"),
    ),
    "a block that was sealed again": Damage(
        _reseal_first_block, Check.SEAL, "block 2", "does not lead to the block before it"
    ),
    "a block that skips elsewhere": Damage(
        "UPDATE {blocks} SET skip = previous WHERE number = 6",
        *(Check.SEAL, "block 6", "does not lead to block 3, which it skips to"),
    ),
    "a block is gone": Damage(
        "DELETE FROM {blocks} WHERE number = 3",
        *(Check.SEAL, "block 4", "block 3 before it is missing"),
    ),
    "the first block is gone": Damage(
        "DELETE FROM {blocks} WHERE number = 1",
        *(Check.SEAL, "block 2", "block 1 before it is missing"),
    ),
    "a block that begins too late": Damage(
        "UPDATE {blocks} SET first_pos = 7, count = 4 WHERE number = 2",
        *(Check.SEAL, "block 2", "begins at position 7, but the one before ends at 5"),
    ),
    "a block of more than there is": Damage(
        "UPDATE {blocks} SET count = 1000000000 WHERE number = (SELECT max(number) FROM {blocks})",
        *(Check.SEAL, r"block \d+", "but the leaves end at"),
    ),
    "a block of no events": Damage(
        "UPDATE {blocks} SET count = 'none' WHERE number = 2",
        *(Check.SEAL, "block 2", "cannot be that of a block"),
    ),
    "a count that is too high": Damage(
        "UPDATE {counters} SET count = count + 1 WHERE state = 'completed'",
        *(Check.COUNT, "the counts", "queue 'default' has 2 jobs completed, but 3 are counted"),
    ),
    "a count that is gone": Damage(
        "DELETE FROM {counters} WHERE state = 'cancelled'",
        *(Check.COUNT, "the counts", "queue 'other' has 1 jobs cancelled, but 0 are counted"),
    ),
    "a count of a queue that nobody knows": Damage(
        "INSERT INTO {counters} VALUES ('t', 'void', 'available', 5)",
        *(Check.COUNT, "the counts", "queue 'void' of tenant 't' has 0 jobs available, but 5"),
    ),
    "the row of a lease is gone": Damage(
        "DELETE FROM {leases}",
        *(Check.LEASE, "wired version 2", "its lease L-.* has no row"),
    ),
    "an ended lease has a row": Damage(
        "INSERT INTO {leases} SELECT json_extract(rest, '$.lease'), 1, 1 FROM {events}"
        " WHERE record = 'was-wired' AND version = 2",
        *(Check.LEASE, "was-wired version 3", "ended lease L-.* has a row"),
    ),
}
