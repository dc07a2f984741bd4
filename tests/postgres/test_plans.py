"""No statement of the hot paths walks through the past, whatever the planner knows about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from detent.stores.postgres.statements import SQL
from tests.postgres.server import databases

HOT = (
    # commit
    *("move", "step", "push", "heads", "own", "leases_locked", "workers_shared", "promised"),
    *("counting", "rearm", "record", "records_locked", "workflows_locked", "steps_read"),
    # claim
    *("claim", "claimed_before", "lane_heads", "lane_next", "picked", "flip", "stored"),
    # due
    *("take_due", "take_due_records", "extend", "beat", "declare_lost", "notes_put"),
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
FINISHED, LIVE = 200_000, 50_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[psycopg.Connection]:
    """The tables, empty, under the settings that every connection of the store has."""
    with psycopg.connect(databases().of(tmp_path), autocommit=True) as one:
        one.execute("SET enable_seqscan = off")
        yield one


def plan(database: psycopg.Connection, text: str) -> str:
    """How the server would carry it out, not knowing the values."""
    rows = database.execute(b"EXPLAIN (GENERIC_PLAN) " + text.encode(), prepare=False).fetchall()
    return "\n".join(row[0] for row in rows)


def walks(database: psycopg.Connection) -> list[str]:
    """The hot statements that look at a whole table."""
    found = ((name, _WALK.search(plan(database, SQL[name].text))) for name in HOT)
    return [f"{name}: {match[0]}" for name, match in found if match]


def grow(database: psycopg.Connection, state: str, first: int, number: int) -> None:
    text = Path(__file__).with_name("grow.sql").read_bytes()
    chosen = {"state": state, "first": first, "last": first + number - 1}
    for statement in text.split(b";\n"):
        database.execute(statement, {**chosen, "is_over": state == "completed"})


def test_no_hot_statement_walks(database: psycopg.Connection) -> None:
    assert walks(database) == []


def test_the_test_would_see_a_walk(database: psycopg.Connection) -> None:
    assert _WALK.search(plan(database, "SELECT FROM detent.jobs WHERE attempt = $1"))


@pytest.mark.slow
def test_no_hot_statement_walks_beside_a_long_past(database: psycopg.Connection) -> None:
    grow(database, "completed", 1, FINISHED)
    grow(database, "available", FINISHED + 1, LIVE)
    assert walks(database) == []
    database.execute("ANALYZE")
    assert walks(database) == []
