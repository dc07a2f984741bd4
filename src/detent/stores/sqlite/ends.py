"""Completions that are alike, written as columns: one statement per table, whatever their number.

A worker that drains a backlog ends its jobs by the hundred, and they differ in their names alone.
A statement that is run row by row asks for the interpreter's lock after each of them, beside loops
that want it too; one that is given all names at once runs by itself. Whatever is odd about one of
them is nothing for here, and then all of them go the other ways, unit by unit.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import astuple

from detent.lifecycle.event import Event
from detent.lifecycle.job import JobState
from detent.stores.api import Move, Unit
from detent.stores.sqlite import rows
from detent.stores.sqlite.pending import Pending
from detent.stores.sqlite.statements import SQL, numbered
from detent.stores.sqlite.writing import Writing

FEW: Final = 4
"""Fewer than so many are written one by one: that takes less time."""
_ACTIVE, _COMPLETED = JobState.ACTIVE.value, JobState.COMPLETED.value
_COMMAND, _DIGEST = (Event.__struct_fields__.index(name) for name in ("command_id", "digest"))
_NUL, _ESCAPED = "\0", "\\u0000"
_SIMPLE = re.compile(r"[\w:.\-]*", re.ASCII)
"""Digests that are the same in JSON and outside."""
_encode = msgspec.json.Encoder().encode
_decode_numbers = msgspec.json.Decoder(list[int]).decode


class Like(NamedTuple):
    """What completions have in common that are written together: all but their names."""

    tenant: str
    queue: str
    row: tuple[Any, ...]
    told: tuple[Any, ...]
    is_told: bool


def parted(units: Sequence[Unit]) -> Iterator[tuple[Like | None, list[Unit]]]:
    """The same units in the same order, those together that follow each other and are alike."""
    run: list[Unit] = []
    last: Like | None = None
    for unit in units:
        like = _like(unit)
        if run and like != last:
            yield last, run
            run = []
        run.append(unit)
        last = like
    if run:
        yield last, run


def _like(unit: Unit) -> Like | None:
    """What is to be said of a plain completion but its names; nothing of any other unit."""
    if unit.new or len(unit.moves) != 1 or unit.flow is not None:
        return None
    move = unit.moves[0]
    job = move.job
    if job.state is not JobState.COMPLETED or len(move.events) != 1 or not _is_end(unit, move):
        return None
    values = astuple(move.events[0])
    if values[0] != job.tenant or values[1] != job.id or values[2] != job.version:
        return None
    row = rows.done_row(job, move.wake_at, 0, move.version)
    told = values[2:_COMMAND], values[_COMMAND + 1 : _DIGEST], values[_DIGEST + 1 :]
    return Like(job.tenant, job.queue, row, told, values[_DIGEST] is not None)


def _is_end(unit: Unit, move: Move) -> bool:
    """A success with nothing but a result beside it, of a job outside of workflows."""
    if unit.puts or unit.gates or unit.limits or move.lines or move.lost:
        return False
    return (
        move.lease is not None
        and not move.job.wire
        and move.job.version == move.version + 1
        and move.job.step is None
        and move.failure is None
        and move.checkpoint is None
        and move.meta is None
        and move.taken_by is None
    )


class Ends:
    """Judges many completions with one question, and writes them with one statement per table."""

    def __init__(self, connection: sqlite3.Connection, pending: Pending, writing: Writing) -> None:
        self._connection = connection
        self._pending = pending
        self._writing = writing

    def take(self, like: Like, units: Sequence[Unit]) -> bool:
        """Whether they all passed the fences and are written; otherwise nothing is."""
        moves = [unit.moves[0] for unit in units]
        said = _said(moves)
        if said is None:
            return False
        self._pending.flush()
        fenced = self._fenced(like, moves)
        if fenced is None:
            return False
        seqs, wired = fenced
        self._write(like, moves, seqs, said)
        if wired:
            leases = _text([move.lease for move in moves])
            self._connection.execute(SQL["leases_end"], (leases,))
        return True

    def _fenced(self, like: Like, moves: Sequence[Move]) -> tuple[str, int] | None:
        """The rows of these jobs, if each has the version and the lease that it was ended under.

        Beside them how many of these leases have rows of their own.
        """
        ids = [move.job.id for move in moves]
        asked = (_text(ids), like.tenant, like.queue, like.row[-1])
        seqs, leases, wired = self._connection.execute(SQL["ending"], numbered(asked)).fetchone()
        # Two ends of one job would pass here together, and only one of them is one.
        is_whole = leases == _text([move.lease for move in moves]) and len({*ids}) == len(ids)
        return (seqs, wired) if is_whole else None

    def _write(self, like: Like, moves: Sequence[Move], seqs: str, said: _Said) -> None:
        pending, number = self._pending, len(moves)
        *common, _, version = like.row
        moved = self._connection.execute(SQL["jobs_done"], (*common, seqs, version))
        if moved.rowcount != number:
            raise sqlite3.IntegrityError(f"{moved.rowcount} of {number} jobs could be ended")
        event = (said.names, pending.positions(number), said.command, said.digest, *said.row)
        self._connection.execute(SQL["events_done"], numbered(event))
        pending.shift(like.tenant, like.queue, _ACTIVE, _COMPLETED, number)
        if any(move.result is not None for move in moves):
            for seq, move in zip(_decode_numbers(seqs), moves, strict=True):
                if move.result is not None:
                    pending.add("result_put", seq, move.result, move.result_until)
        if pending.has_handed:
            self._connection.execute(SQL["unhand_all"], (seqs,))
        if pending.has_limits:
            # They made room, and somebody may be waiting for just that.
            self._writing.has_made_available = True


class _Said(NamedTuple):
    """What the events say. `names` has a text for each: its command, its digest, its record.

    The first two are as long in all of them; `row` is what all share, with the rest in two parts.
    """

    names: str
    command: int
    digest: int
    row: tuple[Any, ...]


def _said(moves: Sequence[Move]) -> _Said | None:
    """The same as `event_row` would say it, or nothing where that would be hard to see."""
    events = [move.events[0] for move in moves]
    first = events[0]
    command, digest = len(first.command_id), len(first.digest or "")
    if any(len(one.command_id) != command or len(one.digest or "") != digest for one in events):
        return None
    tenant, _, *told = rows.event_row(first)
    rest = _around(told.pop(), first.digest)
    if rest is None:
        return None
    names = _text([f"{one.command_id}{one.digest or ''}{one.record}" for one in events])
    digests = "".join([one.digest or "" for one in events])
    results = "".join([move.result for move in moves if move.result is not None])
    said = f"{names}{first.actor_id}{rest[0]}{rest[1]}{results}"
    if not _is_told(said) or not _SIMPLE.fullmatch(digests):
        return None
    del told[7]
    return _Said(names, command, digest, (tenant, *told, *rest))


def _around(rest: Any, digest: str | None) -> tuple[Any, str] | None:
    """What an event says beyond its columns before and after its digest."""
    if digest is None:
        return rest, ""
    parts = str(rest).split(digest)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _is_told(said: str) -> bool:
    """Whether any database can keep these texts; what is no ASCII is looked at by others."""
    return said.isascii() and _NUL not in said and _ESCAPED not in said


def _text(values: Sequence[Any]) -> str:
    return _encode(values).decode()
