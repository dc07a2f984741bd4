"""Rows and structs: nothing is lost on the way to the database and back."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent import stores
from detent.lifecycle import job as j
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.seal import leaf
from detent.stores.sqlite import rows
from detent.stores.sqlite.statements import SQL
from tests.contract.making import Clock
from tests.lifecycle.driver import live
from tests.sqlite.processes import url_of

SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    str: st.text(st.characters(exclude_categories=["Cs"])),
}


def names(path: Path, table: str) -> list[str]:
    connection = sqlite3.connect(path)
    cursor = connection.execute("SELECT name FROM pragma_table_info(?) ORDER BY cid", (table,))
    found = [name for (name,) in cursor]
    connection.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with empty tables."""

    async def open_and_close() -> None:
        async with stores.open(url_of(tmp_path / "detent.db"), clock=Clock()):
            pass

    asyncio.run(open_and_close())
    return tmp_path / "detent.db"


def test_records_are_stored_in_the_order_of_their_fields(path: Path) -> None:
    fields = list(Job.__struct_fields__)
    assert names(path, "detent_stored")[1 : len(fields) + 1] == fields
    assert names(path, "detent_jobs")[1 : len(fields) + 1] == fields


def test_every_field_that_changes_is_written_by_a_move() -> None:
    written = {word.strip(",") for word in SQL["job_move"].split()}
    fixed = set(Job.__struct_fields__) - written
    assert fixed == {
        *("tenant", "id", "profile", "delivery", "allowed", "losses_allowed", "created_at"),
        *("expires_at", "available_us", "pending_us", "active_us", "rerun_of", "workflow", "step"),
    }


NARROW = {"claim": "job_taken", "dispatch": "job_taken", "complete": "job_done"}
"""What the most frequent moves are written by: statements that set only what those moves change."""


def test_whatever_a_frequent_move_changes_is_written_by_its_own_statement() -> None:
    seen: Counter[tuple[str | None, str, str | None]] = Counter()
    for seed in range(400):
        events = live(Random(seed), seen, 60).events
        for version, event in enumerate(events[1:], start=1):
            if event.name in NARROW:
                before, after = (j.fold(events[:upto]) for upto in (version, version + 1))
                assert before is not None
                assert after is not None
                names = [name for name in Job.__struct_fields__ if differ(name, before, after)]
                written = {word.strip(",") for word in SQL[NARROW[event.name]].split()}
                assert set(names) <= written
    assert {name for _, name, _ in seen} >= NARROW.keys()


def test_a_job_that_was_just_born_has_nothing_but_what_is_written_of_it() -> None:
    listed = SQL["job_born"].split("(")[1].split(")")[0].replace(",", " ").split()
    lives = [live(Random(seed), Counter(), 5).events[:1] for seed in range(400)]
    born_ones = [born for events in lives if (born := j.fold(events)) is not None]
    assert len(born_ones) > 300
    for born in born_ones:
        rest = {name: getattr(born, name) for name in Job.__struct_fields__ if name not in listed}
        assert all(value is None for value in rest.values()), rest
        noughts = ("attempt", "failures", "losses", "handed_back", "wire")
        assert [getattr(born, name) for name in noughts] == [0] * len(noughts)


def differ(name: str, before: Job, after: Job) -> bool:
    return bool(getattr(before, name) != getattr(after, name))


def test_the_columns_of_an_event_are_its_first_fields_in_their_order() -> None:
    """Everything from `cause` on is kept as one text, so a new field belongs behind it."""
    columns = SQL["event_insert"].split("(")[1].split(")")[0].replace(",", " ").split()
    assert (columns[0], columns[-1]) == ("pos", "rest")
    columns = columns[1:]
    assert tuple(columns[:-1]) == Event.__struct_fields__[: len(columns) - 1]
    assert Event.__struct_fields__[len(columns) - 1] == "cause"


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Whatever a database can hold, for a type as it stands at a field."""
    inner = get_args(kind)
    if type(None) in inner:
        return st.none() | anything(inner[0])
    if inner:
        return st.lists(anything(inner[0]), max_size=3).map(tuple)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if issubclass(kind, StrEnum):
        return st.sampled_from(list(kind))
    fields = {field.name: anything(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


@given(anything(Event))
def test_an_event_that_was_stored_is_the_same_and_has_the_same_leaf(event: Event) -> None:
    row: tuple[Any, ...] = rows.event_row(event)
    again = rows.event_of((1, *row))
    assert again == event
    assert leaf(again) == leaf(event)


def test_an_event_with_nothing_to_say_takes_no_text() -> None:
    event = msgspec.convert(
        {
            **dict.fromkeys(("tenant", "record", "name", "actor_id", "command_id"), "x"),
            "version": 1,
            "at": 1,
            "source": None,
            "target": None,
            "actor": "user",
        },
        Event,
    )
    assert rows.event_row(event)[-1] is None
