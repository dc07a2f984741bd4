"""Inside somebody's transaction a unit gets the answer that a step would have given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from detent.stores.api import Committed, Idempotency, Outcome, Rejected, Unique, Unit
from detent.stores.memory import connect
from detent.stores.postgres.judging import _lock_number
from detent.stores.postgres.lanes import Lane
from tests.contract.making import SECOND, START, Clock, Maker
from tests.contract.world import World
from tests.inside.test_together import LIVE
from tests.inside.yard import Yard

NASTY = ["", " ", 'a"b\\c/d', "\n\r\t\b\f\x01\x1f\x7f", "ä€😀\u2028\ufeff", "%s :x $1 {{job}}", "'"]
Case = Callable[[Maker], list[Unit]]


def _promise(digest: str = "d", until: int = START + SECOND) -> Idempotency:
    return Idempotency("k", digest, until)


def _siblings(make: Maker, *facts: dict[str, Any]) -> Unit:
    command = make.command_id()
    return make.inserting(*[make.new(command_id=command, **one) for one in facts])


def _pairs(make: Maker, first: dict[str, Any], second: dict[str, Any]) -> list[Unit]:
    return [make.pushed(**first), make.pushed(**second)]


def _changed(make: Maker, **facts: Any) -> Unit:
    new = make.new()
    return make.inserting(replace(new, **facts))


def _event(make: Maker, **facts: Any) -> Unit:
    new = make.new()
    return make.inserting(replace(new, events=(replace(new.events[0], **facts),)))


def _twice(make: Maker) -> list[Unit]:
    new = make.new()
    return [make.inserting(new, new)]


CASES: dict[str, Case] = {
    "the same again": lambda m: [one := m.pushed(), one],
    "the same id": lambda m: _pairs(m, {"id": "x"}, {"id": "x"}),
    "the same id of another tenant": lambda m: _pairs(m, {"id": "x"}, {"id": "x", "tenant": "t"}),
    "a fingerprint": lambda m: _pairs(m, *[{"unique": Unique("f", LIVE)}] * 2),
    "a fingerprint of another tenant": lambda m: _pairs(
        m, {"unique": Unique("f", LIVE)}, {"unique": Unique("f", LIVE), "tenant": "t"}
    ),
    "a fingerprint in another state": lambda m: _pairs(
        m, {"unique": Unique("f", LIVE)}, {"unique": Unique("f", ("completed",))}
    ),
    "a fingerprint from before": lambda m: _pairs(
        m, {"unique": Unique("f", LIVE)}, {"unique": Unique("f", LIVE, since=START + 1)}
    ),
    "a promise": lambda m: _pairs(m, *[{"idempotency": _promise()}] * 2),
    "a promise for something else": lambda m: _pairs(
        m, {"idempotency": _promise()}, {"idempotency": _promise("e")}
    ),
    "a promise that has run out": lambda m: _pairs(
        m, {"idempotency": _promise(until=START)}, {"idempotency": _promise("e")}
    ),
    "a promise before a fingerprint": lambda m: _pairs(
        m, *[{"idempotency": _promise(), "unique": Unique("f", LIVE)}] * 2
    ),
    "siblings": lambda m: [_siblings(m, {}, {}, {})],
    "siblings of one fingerprint": lambda m: [
        _siblings(m, {}, *[{"unique": Unique("f", LIVE)}] * 2)
    ],
    "siblings of one promise": lambda m: [
        _siblings(m, {"idempotency": _promise()}, {"idempotency": _promise("e")})
    ],
    "siblings of one promise that has run out": lambda m: [
        _siblings(m, {"idempotency": _promise(until=START)}, {"idempotency": _promise("e")})
    ],
    "a sibling and a stored one": lambda m: [
        m.pushed(unique=Unique("f", LIVE)),
        _siblings(m, {"unique": Unique("g", LIVE)}, {"unique": Unique("f", LIVE)}),
    ],
    "one that stands twice": _twice,
    "no history": lambda m: [Unit("c", new=(replace(m.new(), events=()),))],
    "a version that is missing": lambda m: [_event(m, version=2)],
    "an event of another record": lambda m: [_event(m, record="y")],
    "an event of another kind": lambda m: [_event(m, kind="workflow")],
    "a move that nothing declares": lambda m: [_event(m, target="active")],
    "another version than its history": lambda m: [
        _changed(m, job=replace(m.new().job, version=2, id="job-000001"))
    ],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", ["sqlite3", "psycopg"])
async def test_the_answers_are_those_of_a_step(yard: Yard, case: str) -> None:
    units, caller = CASES[case](Maker(Clock())), await yard.caller()
    await caller.begin()
    found = [await caller.enqueue(unit, START) for unit in units]
    await caller.commit()
    async with connect("memory:", Clock()) as store:
        model = World(store, Clock())
        assert list(map(_said, found)) == [
            _said(one) for u in units for one in await model.commit(u)
        ]
        assert await yard.world.everything() == await model.everything()
        assert await yard.world.feed() == await model.feed()


def _said(outcome: Outcome) -> Outcome:
    """Why a database refuses something it says in its own words."""
    return Rejected("") if isinstance(outcome, Rejected) else outcome


@pytest.mark.parametrize("name", NASTY)
@pytest.mark.parametrize("way", ["psycopg"])
async def test_the_function_finds_lanes_and_locks_as_the_store_does(yard: Yard, name: str) -> None:
    lane = Lane("", name, name, "python", "pull", name)
    lock = ("unique", name, name)
    with psycopg.connect(yard.url) as connection:
        ask = "SELECT detent.digest_of(%s)"
        found = [connection.execute(ask, (list(one),)).fetchone() for one in (lane, lock)]
    assert found[0] == (lane.digest,)
    assert found[1] is not None
    assert int.from_bytes(found[1][0][:8], signed=True) == _lock_number(lock)


@pytest.mark.parametrize("way", ["psycopg"])
async def test_several_units_in_one_call_are_answered_one_by_one(yard: Yard) -> None:
    ask, world = "SELECT detent.enqueue(%s, %s)", yard.world
    unit = '{"command_id": "c", "new": []}'
    with psycopg.connect(yard.url) as connection:
        found = connection.execute(ask, (f"[{unit}, {unit}]", world.now)).fetchone()
        assert found is not None
        assert found[0].count("rejected") == 2
    assert yard.rows() == (0, 0)


@pytest.mark.parametrize("way", ["sqlite3", "psycopg"])
async def test_a_known_lane_is_used_at_once(yard: Yard) -> None:
    world, caller = yard.world, await yard.caller()
    await world.push(queue='a "b" ä')
    await caller.begin()
    assert await caller.enqueue(world.make.pushed(queue='a "b" ä'), world.now) == Committed()
    await caller.commit()
    if yard.database == "postgresql":
        assert yard.ask("SELECT count(*) FROM detent.unplaced") == [(0,)]
    assert len(await world.claim_ids(queues=('a "b" ä',))) == 2
