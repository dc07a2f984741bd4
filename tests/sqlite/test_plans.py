"""No statement of the hot paths walks through the past, and none does after ANALYZE either."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import stores
from detent.stores.pieces import LOOK
from detent.stores.select import Filter, Page
from detent.stores.sqlite import reader, statements
from detent.stores.sqlite.statements import NUMBERED, SQL, numbered, split
from tests.sqlite.processes import url_of

HOT = (
    # commit
    *(
        "head",
        "heads",
        "last_seq",
        "job_move",
        "job_taken",
        "job_done",
        "ending",
        "jobs_done",
        "job_rearm",
        "is_own",
        "unique_holders",
        "unique_of",
    ),
    *(
        "unique_move",
        "idempotency_find",
        "log_last",
        "lease_end",
        "unhand",
        "unhand_all",
        "last_pos",
    ),
    *("record", "record_drop", "workflow", "steps", "step_tally", "step_flips", "step_sweep"),
    *("lane_drop", "meta_put", "tags_of", "tag_drop", "erase_body", "erase_logs", "erase_failures"),
    # claim
    *(
        "lanes",
        "kinds",
        "lane",
        "lane_of_keys",
        "lane_next",
        "stored_like",
        "holding",
        "jobs_taken",
        "worker",
        "gate",
        "stored_seq",
        "stored_seqs",
        "stored_failures",
        "head_failures",
    ),
    *("flipping", "flip", "flipped", "gate_job", "limit", "limit_use", "limits", "held_in_queue"),
    *("held_of_key", "served", "served_latest"),
    # due
    *("worker_lose", "worker_row", "beat", "instance", "instance_version", "instance_put"),
    *("due", "due_hold", "lost_due", "lost_emptied", "lease", "lease_extend", "wake_earlier"),
    *("swept_due", "swept_emptied", "is_swept", "records_due", "record_hold"),
    # retention
    *("forget_workers", "instances_over", "forget_instance"),
    *("over", "sealed", "forget_unique", "forget_promise", "forget_events", "forget_promises"),
    *("forget_turns", "results_over", "keep_result", "forget_result"),
    *(
        "is_over",
        "is_empty_workflow",
        "empty_workflows",
        "step_ids",
        "forget_steps",
        "forget_workflow",
    ),
    # reading
    *("found_rare", "found_in_workflow", "found_tagged", "leaves", "records"),
    *("found_workflows", "next_flow_tenant"),
    *("seq", "found", "held_by", "history", "feed", "blocks", "logs", "log_tail"),
    *("found_held", "found_on_hold", "beyond"),
    *("keys_after", "next_tenant", "block_last", "block"),
)
# What a recursive statement has found so far is no table, and neither is what it is given as JSON.
_GIVEN = "json_each|asked|taken|CONSTANT|types|kinds"
_SCAN = re.compile(rf"SCAN (?!{_GIVEN})\w+|SEARCH .*\(tenant=\?\)$")
# Walks in the order of the table itself, from its end, and stops after one row.
# What is in hands is walked over whole: nobody has more in hands than can run.
_MAY_SCAN = {"block_last", "last_pos", "sealed", "limits", "found_held"}
FINISHED, LIVE = 200_000, 50_000


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The tables, empty."""
    path = tmp_path / "detent.db"

    async def open_and_close() -> None:
        async with stores.open(url_of(path)):
            pass

    asyncio.run(open_and_close())
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def scans(database: sqlite3.Connection) -> list[str]:
    """The hot statements that look at a whole table or index, with how."""
    return [
        f"{name}: {detail}"
        for name in HOT
        if name not in _MAY_SCAN
        for *_, detail in database.execute(f"EXPLAIN QUERY PLAN {SQL[name]}", values(name))
        if _SCAN.search(detail)
    ]


def values(name: str) -> dict[str, None] | list[None]:
    named = re.findall(r"(?::|\?)(\w+)", SQL[name])
    return dict.fromkeys(named) if named else [None] * SQL[name].count("?")


def test_numbers_are_told_as_numbers() -> None:
    """Python 3.14 refuses a sequence for them, and those before 3.12 say nothing about it."""
    asked = [
        (name, line)
        for file in Path(statements.__file__).parent.glob("*.py")
        for line in file.read_text().splitlines()
        for name in re.findall(r'SQL\["(\w+)"\]', line)
        if name in NUMBERED
    ]
    assert len(asked) > 8
    assert [name for name, line in asked if "numbered(" not in line] == []


def test_no_hot_statement_scans(database: sqlite3.Connection) -> None:
    assert scans(database) == []


def test_the_test_would_see_a_scan(database: sqlite3.Connection) -> None:
    scanning = (
        "SELECT * FROM detent_jobs WHERE type = ''",
        "SELECT count(*) FROM detent_events",
        # All that a tenant has is all there is, for most.
        "SELECT * FROM detent_steps WHERE tenant = ''",
    )
    for statement in scanning:
        [(*_, detail)] = database.execute(f"EXPLAIN QUERY PLAN {statement}")
        assert _SCAN.search(detail)


def steps(database: sqlite3.Connection, name: str, *args: object, **named: object) -> int:
    """How many instructions of SQLite's machine a statement takes."""
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    database.set_progress_handler(count, 1)
    told = numbered(args) if name in NUMBERED else named or args
    database.execute(SQL[name], told).fetchmany(10)
    database.set_progress_handler(None, 0)
    return taken


def grow(database: sqlite3.Connection, state: str, first: int, number: int) -> None:
    """Jobs by plain SQL, so many that they could not be pushed in the time of a test."""
    chosen = {
        "state": state,
        "first": first,
        "last": first + number - 1,
        "is_over": state == "completed",
    }
    database.execute("BEGIN")
    for statement in split(Path(__file__).with_name("grow.sql").read_text("utf-8")):
        database.execute(statement, chosen)
    database.execute("COMMIT")


def costs(database: sqlite3.Connection) -> dict[str, int]:
    lane = ("", "default", "pull", "type1", "python", None, 0)
    return {
        "head": steps(database, "head", "", "job-00000001"),
        "lanes": steps(database, "lanes", tenant="", queue="default", delivery="pull"),
        "kinds": steps(database, "kinds", tenant="", queue="default", delivery="pull"),
        "lane": steps(database, "lane", *lane),
        "due": steps(database, "due", 10**9, 10),
        "history": steps(database, "history", "", "job-00000001"),
        "feed": steps(database, "feed", 500, 10),
        "move": steps(database, "job_rearm", None, 1, 1),
        "stored": steps(database, "stored_seqs", "[1, 2, 3]"),
    }


def test_a_page_costs_the_same_at_any_depth(database: sqlite3.Connection) -> None:
    grow(database, "available", 1, 2_000)
    page = {**dict.fromkeys(Filter.__struct_fields__), "tenant": "", "limit": 10}
    first, *deep = (
        steps(database, "found", **page, below=below, beyond="")
        for below in (b"", "job-00001900", "job-00001000", "job-00000100")
    )
    assert deep == [first] * 3


def test_whoever_lists_what_is_running_walks_over_nothing_else(
    database: sqlite3.Connection,
) -> None:
    page = {**dict.fromkeys(Filter.__struct_fields__), "tenant": "", "limit": 10}
    asked = {**page, "state": "active", "below": b""}
    grow(database, "completed", 1, 10)
    few = steps(database, "found_held", **asked)
    grow(database, "completed", 11, 2_000)
    assert steps(database, "found_held", **asked) == few


def test_what_is_rare_is_found_however_far_back(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    """Piece by piece, until there is no more or enough was looked at."""
    grow(database, "completed", 1, 2 * LOOK + 5)
    rare = "UPDATE detent_jobs SET type = 'rare' WHERE seq IN (1, 2, ?, ?)"
    database.execute(rare, (LOOK, LOOK + 7))

    async def found_on(page: Page) -> list[str]:
        async with stores.open(url_of(tmp_path / "detent.db")) as store:
            found = await store.find(Filter(tenant="", type="rare"), page)
            return [one.job.id for one in found]

    ids = [f"job-{number:08}" for number in (LOOK + 7, LOOK, 2, 1)]
    assert asyncio.run(found_on(Page(10))) == ids
    assert asyncio.run(found_on(Page(3))) == ids[:3]
    assert asyncio.run(found_on(Page(2, ("", ids[1])))) == ids[2:]
    assert asyncio.run(found_on(Page(10, look=1))) == ids[:1]


def test_a_page_of_all_tenants_reads_one_page(database: sqlite3.Connection) -> None:
    """Each of them has as many newer jobs as are wanted."""
    grow(database, "completed", 1, 4_000)
    database.execute("UPDATE detent_jobs SET tenant = 't' || (seq % 20)")
    taken = 0

    def count() -> int:
        nonlocal taken
        taken += 1
        return 0

    database.set_progress_handler(count, 100)
    found = reader.find(database, Filter(), Page(100)).found
    database.set_progress_handler(None, 0)
    assert len(found) == 100
    assert taken < 150, taken


def test_a_claim_does_not_look_at_every_key(database: sqlite3.Connection) -> None:
    grow(database, "available", 1, 2_000)
    few = key_costs(database, 1)
    assert key_costs(database, 1_000) == few


def key_costs(database: sqlite3.Connection, keys: int) -> list[int]:
    """What it takes to find the lanes and the first jobs of them, when there are so many keys."""
    database.execute("UPDATE detent_jobs SET key = 'k' || (seq % ?)", [keys])
    database.execute("DELETE FROM detent_lanes")
    database.execute(
        "INSERT INTO detent_lanes (tenant, queue, delivery, type, profile, key, count)"
        " SELECT tenant, queue, delivery, type, profile, key, count(*) FROM detent_jobs"
        " GROUP BY 1, 2, 3, 4, 5, 6"
    )
    lane = ("", "default", "pull", "type1", "python", 0)
    return [
        steps(database, "kinds", tenant="", queue="default", delivery="pull"),
        steps(database, "lane_of_keys", *lane),
    ]


@pytest.mark.slow
def test_no_hot_statement_scans_or_grows_beside_a_long_past(database: sqlite3.Connection) -> None:
    grow(database, "completed", 1, 1_000)
    grow(database, "available", 1_001, 1_000)
    small = costs(database)
    grow(database, "completed", 2_001, FINISHED)
    grow(database, "available", 2_001 + FINISHED, LIVE)
    assert scans(database) == []
    assert costs(database) == small
    database.execute("ANALYZE")
    assert scans(database) == []
    assert costs(database) == small
