"""Where each store keeps what a reader knows: one map per store, from tables to canonical ones.

A column that is named nowhere keeps its name in the canonical table; one that is left out has a
reason. `dump` reads all tables through the map; a table that the map does not know fails it.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from detent.testing.clock import START

Row = dict[str, Any]

# The columns that tell the rows of a canonical table apart. Rows that share them are one row.
KEYS: Mapping[str, tuple[str, ...]] = {
    "jobs": ("tenant", "job"),
    "payloads": ("tenant", "job"),
    "results": ("tenant", "job"),
    "errors": ("tenant", "job", "attempt", "at"),
    "checkpoints": ("tenant", "job"),
    "progress": ("tenant", "job"),
    "logs": ("tenant", "job", "cursor"),
    "tags": ("tenant", "tag", "job"),
    "idempotency": ("tenant", "key"),
    "leases": ("lease",),
    "workflows": ("tenant", "workflow"),
    "steps": ("tenant", "step"),
    "workers": ("worker",),
    "worker_histories": ("tenant", "worker"),
    "records": ("kind", "tenant", "id"),
    "limits": ("tenant", "kind", "name"),
    "fairness": ("tenant", "fair", "name"),
    "pauses": ("tenant", "kind", "name"),
    "counts": ("tenant", "queue", "state"),
    "seals": ("number",),
    "events": ("tenant", "record", "version"),
}


class Table(NamedTuple):
    """A stored table: where its rows go, which columns have other names, and which are left out.

    A new name may be in another canonical table ("payloads.type"). `through` is a table to look
    rows up in: {column: stored table whose primary key it is}.
    """

    into: str
    named: Mapping[str, str] = {}
    left_out: Mapping[str, str] = {}
    through: Mapping[str, str] = {}


_ROOT = "a hash over random ids; `verify` below says that all of them are right"
_COMMAND = "random, and only read to recognise one's own commit"
_IN_RECORD = "repeats the record, for statements"
_OF_JOB = "repeats the job, for an index"
_SOFT = "who has just been handed a due job; over in half a second"
_BODY = {
    name: f"payloads.{name}"
    for name in ("type", "key", "payload", "meta", "tags", "retry", "schema")
}

SQLITE: Mapping[str, Table | str] = {
    "detent_jobs": Table(
        "jobs",
        {"id": "job", **{name: _BODY[name] for name in ("type", "key")}},
        {"seq": "a row number", "is_unique": "whether it has a fingerprint"},
    ),
    "detent_bodies": Table("payloads", through={"seq": "detent_jobs"}),
    "detent_uniques": Table(
        "jobs", left_out={"state": _OF_JOB, "created_at": _OF_JOB}, through={"seq": "detent_jobs"}
    ),
    "detent_results": Table("results", through={"seq": "detent_jobs"}),
    "detent_failures": Table("errors", {}, {"row": "a row number"}, {"seq": "detent_jobs"}),
    "detent_checkpoints": Table("checkpoints", through={"seq": "detent_jobs"}),
    "detent_notes": Table("progress", through={"seq": "detent_jobs"}),
    "detent_logs": Table("logs", {}, {"pos": "an order of all lines"}, {"seq": "detent_jobs"}),
    "detent_tags": Table("tags", {"id": "job"}),
    "detent_idempotency": Table("idempotency", through={"seq": "detent_jobs"}),
    "detent_leases": Table("leases", through={"seq": "detent_jobs"}),
    "detent_workflows": Table(
        "workflows", {"id": "workflow"}, dict.fromkeys(("version", "state", "ended_at"), _IN_RECORD)
    ),
    "detent_steps": Table(
        "steps", {"id": "step"}, dict.fromkeys(("version", "state", "workflow"), _IN_RECORD)
    ),
    "detent_workers": Table("workers", {"id": "worker"}),
    "detent_instances": Table(
        "worker_histories",
        {"id": "worker"},
        dict.fromkeys(("version", "state", "ended_at", "slot"), _IN_RECORD),
    ),
    "detent_records": Table("records", {}, {"command_id": _COMMAND}),
    "detent_limits": Table("limits"),
    "detent_served": Table("fairness"),
    "detent_gates": Table("pauses"),
    "detent_counters": Table("counts"),
    "detent_blocks": Table("seals", {}, dict.fromkeys(("root", "previous", "skip"), _ROOT)),
    "detent_events": Table("events", {"name": "event", "rest": "more"}, {"command_id": _COMMAND}),
    "detent_leaves": _ROOT,
    "detent_handed": _SOFT,
    "detent_lanes": "how many jobs a claim finds where; follows from the jobs",
    "detent_meta": "the version of the tables",
    "sqlite_sequence": "SQLite's own",
}

POSTGRESQL: Mapping[str, Table | str] = {
    "jobs": Table(
        "jobs",
        {"id": "job", **_BODY},
        {
            "lane": "where a claim finds it; follows from the job",
            "handed_until": _SOFT,
            "has_result": "whether there is a row in that table",
            "has_failures": "whether there is a row in that table",
            "has_note": "whether there is a row in that table",
            "has_checkpoint": "whether there is a row in that table",
        },
    ),
    "results": Table("results", {"id": "job"}),
    "failures": Table("errors", {"id": "job"}, {"number": "a row number"}),
    "checkpoints": Table("checkpoints", {"id": "job"}),
    "notes": Table("progress", {"id": "job"}),
    "logs": Table(
        "logs", {"id": "job"}, {"pos": "an order of all lines", "xid": "PostgreSQL's own"}
    ),
    "tags": Table("tags", {"id": "job"}),
    "idempotency": Table("idempotency", {"id": "job"}),
    "leases": Table("leases", {"id": "job"}),
    "workflows": Table(
        "workflows", {"id": "workflow"}, dict.fromkeys(("state", "ended_at"), _IN_RECORD)
    ),
    "steps": Table("steps", {"id": "step"}, {"workflow": _IN_RECORD}),
    "workers": Table("workers", {"id": "worker"}),
    "instances": Table(
        "worker_histories",
        {"id": "worker"},
        dict.fromkeys(("version", "state", "ended_at", "slot"), _IN_RECORD),
    ),
    "records": Table("records", {}, {"command_id": _COMMAND}),
    "limits": Table("limits"),
    "served": Table("fairness"),
    "gates": Table("pauses"),
    "tallies": Table("counts", through={"lane": "lanes"}),
    "blocks": Table("seals", {}, dict.fromkeys(("root", "previous", "skip"), _ROOT)),
    "events": Table(
        "events",
        {"name": "event", "rest": "more"},
        {"command_id": _COMMAND, "seq": "feed has the order", "xid": "PostgreSQL's own"},
    ),
    "feed": Table("events"),
    "leaves": _ROOT,
    "lanes": "the kinds of jobs that a claim chooses from; follows from the jobs",
    "cursors": "the last cursor of each log; follows from the logs",
    "unplaced": "jobs that have no lane yet, for a moment",
    "sequencer": "how far the feed is",
    "tail": "the order of all lines, like `pos` of SQLite",
    "tail_sequencer": "how far that is",
    "meta": "the version of the tables",
}
_LOOKED_UP = {
    "detent_jobs": {"tenant": "tenant", "id": "job"},
    "lanes": {"tenant": "tenant", "queue": "queue"},
}
_SUMMED = {"counts": "count"}


# --- reading ------------------------------------------------------------------------------------


def tables_of(url: str) -> dict[str, list[Row]]:
    """Every row of every table that this store has."""
    return _of_sqlite(url) if url.startswith("sqlite:") else _of_postgresql(url)


def _of_sqlite(url: str) -> dict[str, list[Row]]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.row_factory = sqlite3.Row
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: [dict(row) for row in connection.execute(f"SELECT * FROM {name}")]  # noqa: S608
            for (name,) in names
        }


def _of_postgresql(url: str) -> dict[str, list[Row]]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        asked = "SELECT tablename FROM pg_tables WHERE schemaname = 'detent'"
        names = [row["tablename"] for row in connection.execute(asked)]
        everything = sql.SQL("SELECT * FROM detent.{}")
        return {
            name: connection.execute(everything.format(sql.Identifier(name))).fetchall()
            for name in names
        }


def canonical(url: str) -> dict[str, list[Row]]:
    """The rows of this store under their canonical names, sorted by key."""
    stored, names = tables_of(url), SQLITE if url.startswith("sqlite:") else POSTGRESQL
    assert stored.keys() == names.keys(), "a table is not in the map"
    merged: dict[str, dict[tuple[Any, ...], Row]] = defaultdict(dict)
    for name, rows in stored.items():
        table = names[name]
        if isinstance(table, str):
            continue
        for row in rows:
            for into, part in _parts(table, row, stored):
                key = tuple(part[column] for column in KEYS[into])
                before, summed = merged[into].setdefault(key, {}), _SUMMED.get(into)
                if summed is not None:
                    part[summed] += before.get(summed, 0)
                before |= part
    for job in merged["jobs"].values():
        if job["ended_at"] is not None:
            # Whether its step keeps it from starting; PostgreSQL leaves it as it was at the end.
            del job["gated"]
    ranks = _ranks(merged)

    def rank(key: tuple[Any, ...]) -> list[tuple[int, str]]:
        ids = [_ID.search(str(one)) for one in key]
        return [
            (ranks.get(id_[0] if id_ else "", len(ranks)), str(one))
            for one, id_ in zip(key, ids, strict=True)
        ]

    return {
        into: [
            merged[into][key]
            for key in sorted(merged[into], key=rank)
            if _is_shown(into, merged[into][key])
        ]
        for into in KEYS
    }


def _ranks(merged: Mapping[str, Mapping[tuple[Any, ...], Row]]) -> dict[str, int]:
    """The order of jobs and workflows: that in which they were made, whatever their ids are."""
    jobs = sorted((one["created_at"], one["job"]) for one in merged["jobs"].values())
    flows = sorted(
        merged["workflows"], key=lambda key: merged["workflows"][key]["record"]["created_at"]
    )
    return {id_: rank for rank, (_, id_) in enumerate((*jobs, *flows))}


def _is_shown(into: str, row: Row) -> bool:
    """Whether it says anything: a count of none is none."""
    return into not in _SUMMED or row[_SUMMED[into]] != 0


def _parts(table: Table, row: Row, stored: Mapping[str, list[Row]]) -> Iterable[tuple[str, Row]]:
    """The row under its new names; columns of other tables go there, under the same key."""
    parts: dict[str, Row] = defaultdict(dict)
    for column, value in row.items():
        if column in table.left_out:
            continue
        if column in table.through:
            of = table.through[column]
            [found] = [
                one for one in stored[of] if one["seq" if of == "detent_jobs" else column] == value
            ]
            parts[table.into] |= {new: found[old] for old, new in _LOOKED_UP[of].items()}
            continue
        into, _, name = table.named.get(column, column).rpartition(".")
        parts[into or table.into][name] = _plain(value)
    for into, part in parts.items():
        yield (
            into,
            {
                column: parts[table.into][column]
                for column in KEYS[into]
                if column in parts[table.into]
            }
            | part,
        )


def _plain(value: Any) -> Any:
    """Booleans as numbers, and JSON as what it says."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and value.startswith(("{", "[")):
        return json.loads(value)
    return value


# --- making it readable and the same every day --------------------------------------------------

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# What differs from run to run: whole fields, and pieces of texts.
_OF_THIS_RUN = {"process", "keeper", "host", "pid", "by", "token", "$detent:secret"}
_CHANCE = re.compile(r"(?<=pid )\d+ on [^)]+|(?<=127\.0\.0\.1:)\d+|(?<=File \")[^,]+, line \d+")
_START_US = int(START.timestamp()) * 1_000_000
_YEAR_US = 365 * 86_400 * 1_000_000


class _Names:
    """Names for ids: of jobs by type and order, of others by where they are first met."""

    def __init__(self, tables: Mapping[str, list[Row]]) -> None:
        self._known: dict[str, str] = {}
        self._used: dict[str, int] = defaultdict(int)
        types = {(one["tenant"], one["job"]): one["type"] for one in tables["payloads"]}
        counted: dict[str, int] = defaultdict(int)
        for job in tables["jobs"]:
            counted[type_ := types[job["tenant"], job["job"]]] += 1
            self._known[job["job"]] = f"{type_} {counted[type_]}"
        for number, one in enumerate(tables["workflows"], start=1):
            self._known[one["workflow"]] = f"workflow {number}"

    def readable(self, value: Any, field: str, where: str) -> Any:
        """The value with names in place of ids, and times since the beginning of the day."""
        if field in _OF_THIS_RUN and value is not None:
            return dict.fromkeys(value, "?") if isinstance(value, dict) else "?"
        if isinstance(value, dict):
            return {
                self.readable(key, field, where): self.readable(one, key, where)
                for key, one in value.items()
            }
        if isinstance(value, list):
            return [self.readable(one, field, where) for one in value]
        if isinstance(value, int) and _START_US <= value < _START_US + _YEAR_US:
            return f"+{(value - _START_US) / 1e6:.6f}".rstrip("0").rstrip(".") + "s"
        if isinstance(value, str):
            named = _ID.sub(lambda found: self._named(found[0], f"{field} of {where}"), value)
            return _CHANCE.sub("?", named)
        return value

    def _named(self, id_: str, name: str) -> str:
        if id_ not in self._known:
            self._used[name] += 1
            self._known[id_] = f"<{name}{f' {n}' if (n := self._used[name]) > 1 else ''}>"
        return self._known[id_]


def _ordered(row: Row, first: Iterable[str]) -> Iterable[tuple[str, Any]]:
    """The columns: the key in front, the others by name."""
    return ((column, row[column]) for column in dict.fromkeys((*first, *sorted(row))))


def dump(url: str) -> list[str]:
    """Everything that this store holds, a row a line; empty columns are left out."""
    tables = canonical(url)
    names = _Names(tables)
    lines = []
    for into, rows in tables.items():
        for row in rows:
            where = " ".join(
                str(names.readable(row[column], column, into))
                for column in KEYS[into]
                if row[column] != ""
            )
            shown = {
                column: names.readable(value, column, where)
                for column, value in _ordered(row, KEYS[into])
                if value is not None and (column, value) != ("tenant", "")
            }
            lines.append(json.dumps({"in": into, **shown}, ensure_ascii=False, sort_keys=False))
    return lines
