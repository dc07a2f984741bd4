"""How much each statement of a day really reads beside a long past, as the server itself says."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import psycopg
import pytest

from detent import stores
from detent.stores.api import Body
from detent.stores.postgres.statements import SQL
from tests.contract.making import SECOND, Clock
from tests.contract.world import World
from tests.postgres.day import live
from tests.postgres.running import sql
from tools.postgres import QUICK, Server

pytestmark = pytest.mark.slow
FINISHED, LIVE, LANES, KEYS = 200_000, 50_000, 20, 5_000
ROWS = 600
"""What a batch of ten may look at: its own rows, and the heads of each open lane."""
_TELL = {
    **QUICK,
    "shared_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "log_line_prefix": "",
}
_PLAN = re.compile(r"^LOG:  duration: \S+ ms  plan:\n((?:\t.*\n)+)", re.MULTILINE)
_NAMES = {re.sub(r"\s+", " ", one.text): name for name, one in SQL.items()}
_SCANS = {"Seq Scan", "Index Scan", "Index Only Scan", "Bitmap Index Scan"}
_WHOLE = {"tallies_many", "tallies_folded"}
"""At most once a second, and no more than there are lanes that were ever used."""
_BLIND = {"take_due", "found_held"}
"""They need to know that few jobs are in hands, which the server does after its first ANALYZE."""
HOT = {
    # commit
    *("end", "end_richly", "end_and_claim", "end_richly_and_claim"),
    *("report", "report_richly", "report_and_claim", "report_richly_and_claim"),
    *("enqueue", "enqueue_one", "enqueue_tagged"),
    *("move", "step", "push", "heads", "workers_shared", "promised", "counting", "rearm", "record"),
    *("records_locked", "workflows_locked", "steps_read", "logs_put", "notes_put"),
    # claim
    *(
        "claim",
        "standing",
        "claimed_before",
        "lanes_open",
        "lane_heads",
        "picked",
        "flip",
        "stored",
    ),
    *("limits_locked", "in_hands", "served", "unplaced", "place"),
    # due
    *("take_due", "take_due_records", "extend", "beat", "declare_lost", "tallies_folded"),
    # reading
    *("history", "histories", "feed", "sequence_events", "sequence_lines", "held_by", "found"),
    *("found_rare", "found_on_hold", "found_workflows", "records"),
    *("found_held", "found_in_workflow", "found_tagged", "over", "logs", "log_tail", "limits"),
}
_KEYED = """
    WITH made AS (
        INSERT INTO detent.lanes (digest, tenant, queue, type, profile, delivery, key)
        SELECT detent.digest_of(ARRAY['', 'keyed', 't', 'python', 'pull', n::text]),
            '', 'keyed', 't', 'python', 'pull', n::text
        FROM generate_series(1, %s) AS n RETURNING lane
    )
    INSERT INTO detent.tallies (lane, state, count)
    SELECT lane, state, 1 FROM made CROSS JOIN unnest(ARRAY['completed', 'active']) AS one (state)
"""
"""What the keys of another queue leave behind: a lane each, and how many jobs are in it."""
_RECORDS = """
    INSERT INTO detent.records (kind, tenant, id, version, data, command_id)
    SELECT 'many', '', lpad(n::text, 6, '0'), 1, '{}', 'c' FROM generate_series(1, %s) AS n
"""
Plan = dict[str, Any]
Told = list[tuple[str, Plan]]


def scans_of(plan: Plan) -> Iterator[Plan]:
    """The places where rows or index entries come from."""
    if plan["Node Type"] in _SCANS and plan["Actual Loops"]:
        yield plan
    for part in plan.get("Plans", ()):
        yield from scans_of(part)


def rows_of(scan: Plan) -> int:
    """How many rows it had in hand, those that it dropped included."""
    dropped = ("Rows Removed by Filter", "Rows Removed by Index Recheck")
    read = scan["Actual Rows"] + sum(scan.get(name, 0) for name in dropped)
    return int(read * scan["Actual Loops"])


def faults_of(name: str, plan: Plan) -> Iterator[str]:
    """What a statement does that takes longer the longer the past is."""
    for scan in scans_of(plan):
        where = (
            f"{name}: {scan['Node Type']} on {scan.get('Relation Name', scan.get('Index Name'))}"
        )
        rows = rows_of(scan)
        if rows > ROWS:
            yield f"{where} reads {rows} rows"
        # Entries that an index walks over without showing them are in no count but this one.
        blocks = scan["Shared Hit Blocks"] + scan["Shared Read Blocks"]
        if blocks > 100 + 10 * rows + 10 * scan["Actual Loops"]:
            yield f"{where} reads {blocks} blocks for {rows} rows"


def plans(log: str) -> Iterator[tuple[str, Plan]]:
    """What the server said about every statement of ours, by its name."""
    for found in _PLAN.finditer(log):
        told = json.loads(found[1])
        name = _NAMES.get(re.sub(r"\s+", " ", told["Query Text"]))
        if name is not None:
            yield name, told["Plan"]


def grow(url: str) -> None:
    text = (Path(__file__).parent / "grow.sql").read_bytes()
    with psycopg.connect(url) as one:
        for state, first, number in (
            ("completed", 1, FINISHED),
            ("available", FINISHED + 1, LIVE),
        ):
            told = {"state": state, "first": first, "last": first + number - 1}
            for statement in text.split(b";\n"):
                one.execute(statement, {**told, "is_over": state == "completed"})
        one.execute(_KEYED, [KEYS])
        one.execute(_RECORDS, [KEYS])


def size(log: Path) -> int:
    return log.stat().st_size


async def lived(url: str, log: Path) -> tuple[int, int]:
    """A day before the server knows its tables, and one after; where its log was at each dawn."""
    clock = Clock()
    async with stores.open(url, clock=clock) as store:
        world = World(store, clock)
        await world.must(*(world.make.pushed(body=Body(f"type{n}", "[]")) for n in range(LANES)))
        grow(url)
        await store.feed(0, 10)
        before = size(log)
        await live(world, url, "first")
    sql(url, "VACUUM ANALYZE")
    between = size(log)
    clock.move(SECOND)
    # In a store that was just opened: another would not yet fold and place again.
    async with stores.open(url, clock=clock) as store:
        later = World(store, clock)
        later.make = world.make
        await live(later, url, "second")
    return before, between


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(**_TELL) as one:
        yield one


@pytest.fixture(scope="module")
def days(server: Server) -> tuple[Told, Told]:
    """The plans of two days in a grown store."""
    url, log = server.url("postgres"), server.folder / "log"
    stores.run_migrations(url)
    before, between = asyncio.run(lived(url, log))
    said = log.read_bytes()
    return list(plans(said[before:between].decode())), list(plans(said[between:].decode()))


def faults(told: Told, but: Set[str]) -> list[str]:
    found = {fault for name, plan in told if name not in but for fault in faults_of(name, plan)}
    return sorted(found)


def test_no_statement_of_a_day_reads_more_than_its_batch(days: tuple[Told, Told]) -> None:
    first, second = days
    assert faults(first, _WHOLE | _BLIND) == []
    assert faults(second, _WHOLE) == []


def test_every_hot_statement_was_seen(days: tuple[Told, Told]) -> None:
    for told in days:
        assert HOT - {name for name, _ in told} == set()


def test_what_a_restore_brought_is_not_read_again_with_every_stretch(
    server: Server, days: tuple[Told, Told]
) -> None:
    """The server that the events came from had counted further, and this one will not for years."""
    assert days
    url, log = server.url("postgres"), server.folder / "log"
    sql(url, "ALTER TABLE detent.events DISABLE TRIGGER events_never_change")
    sql(url, "UPDATE detent.events SET xid = '900000000000'")
    sql(url, "ALTER TABLE detent.events ENABLE TRIGGER events_never_change")
    sql(url, "VACUUM ANALYZE detent.events")

    async def follow() -> int:
        async with stores.open(url, clock=Clock()) as store:
            await store.feed(0, 10)
            before = size(log)
            await store.feed(0, 10)
            return before

    before = asyncio.run(follow())
    said = plans(log.read_bytes()[before:].decode())
    told = [one for one in said if one[0].startswith("sequence")]
    assert told
    assert faults(told, set()) == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM detent.jobs WHERE attempt > 5",
        # An index whose first columns are not asked for is walked from end to end.
        "SELECT FROM detent.jobs WHERE state = 'available' AND NOT held AND NOT gated"  # noqa: ISC004
        " AND ~priority <> 7 AND place = 240000 ORDER BY lane, ~priority, place, id",
    ],
)
def test_the_test_would_see_it(server: Server, days: tuple[Told, Told], statement: str) -> None:
    assert days
    [[told]] = sql(server.url("postgres"), f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
    assert list(faults_of("x", told[0]["Plan"]))
