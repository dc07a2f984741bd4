"""No statement of the hot paths would walk through tables of which the planner knows nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from detent import stores
from detent.stores.pieces import LOOK
from detent.stores.postgres.statements import SQL, Statement
from detent.stores.select import Filter, Page
from tests.postgres.server import databases

HOT = (
    # commit
    *("end", "end_richly", "end_and_claim", "end_richly_and_claim"),
    *("report", "report_richly", "report_and_claim", "report_richly_and_claim"),
    *("enqueue", "enqueue_one", "enqueue_tagged"),
    *("move", "step", "push", "heads", "own", "leases_locked", "workers_shared", "promised"),
    *("counting", "rearm", "record", "records_locked", "workflows_locked", "steps_read"),
    # claim
    *("claim", "standing", "claimed_before", "lane_heads", "lane_next", "picked", "flip", "stored"),
    # due
    *("take_due", "take_due_records", "extend", "beat", "declare_lost", "notes_put"),
    *("workers_locked", "workers_named", "bury", "ship", "forget_workers", "instances_over"),
    "forget_results",
    # reading
    *(
        "history",
        "histories",
        "feed",
        "sequence_events",
        "sequence_lines",
        "held_by",
        "keys",
        "found",
        "found_rare",
    ),
    *("found_held", "found_in_workflow", "over", "logs", "log_tail", "blocks", "block_last"),
)
_WALK = re.compile(r"Seq Scan on (jobs|bodies|events|feed|results|failures|logs|tail|leaves)\b")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[psycopg.Connection]:
    """The tables, empty, under the settings that every connection of the store has."""
    with psycopg.connect(databases().of(tmp_path), autocommit=True) as one:
        one.execute("SET enable_seqscan = off")
        one.execute("SET plan_cache_mode = force_generic_plan")
        yield one


def plan(database: psycopg.Connection, one: Statement) -> str:
    """How the server would carry it out, not knowing the values."""
    database.execute(b"PREPARE asked AS " + one.text.encode(), prepare=False)
    values = f"({', '.join(['NULL'] * len(one.names))})" if one.names else ""
    rows = database.execute(f"EXPLAIN EXECUTE asked{values}".encode(), prepare=False).fetchall()
    database.execute("DEALLOCATE asked")
    return "\n".join(row[0] for row in rows)


def walks(database: psycopg.Connection) -> list[str]:
    """The hot statements that look at a whole table."""
    found = ((name, _WALK.search(plan(database, SQL[name]))) for name in HOT)
    return [f"{name}: {match[0]}" for name, match in found if match]


def test_no_hot_statement_walks(database: psycopg.Connection) -> None:
    assert walks(database) == []


def test_the_test_would_see_a_walk(database: psycopg.Connection) -> None:
    walking = Statement("SELECT FROM detent.jobs WHERE attempt = $1", ("attempt",))
    assert _WALK.search(plan(database, walking))


def test_what_is_rare_is_found_however_far_back(
    database: psycopg.Connection, tmp_path: Path
) -> None:
    """Piece by piece, until there is no more or enough was looked at."""
    told = {"state": "completed", "first": 1, "last": 2 * LOOK + 5, "is_over": True}
    for statement in Path(__file__).with_name("grow.sql").read_bytes().split(b";\n"):
        database.execute(statement, told)
    ids = [f"job-{number:08}" for number in (LOOK + 7, LOOK, 2, 1)]
    database.execute("UPDATE detent.jobs SET type = 'rare' WHERE id = ANY (%s)", [ids])

    async def found_on(page: Page) -> list[str]:
        async with stores.open(databases().of(tmp_path)) as store:
            found = await store.find(Filter(tenant="", type="rare"), page)
            return [one.job.id for one in found]

    assert asyncio.run(found_on(Page(10))) == ids
    assert asyncio.run(found_on(Page(2, ("", ids[1])))) == ids[2:]
    assert asyncio.run(found_on(Page(10, look=1))) == ids[:1]
