"""One open transaction: everything that an operation of the writer may use."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from detent.errors import BadHistory, StoreCorrupt
from detent.lifecycle.job import OPEN, Gate
from detent.stores.api import Failure, GateKind, Key, Outcome, Rejected, Stored, Unit
from detent.stores.births import Births
from detent.stores.gates import joined
from detent.stores.sqlite import rows
from detent.stores.sqlite.ends import FEW, Ends, parted
from detent.stores.sqlite.faults import UNFIT
from detent.stores.sqlite.known import Known
from detent.stores.sqlite.pending import Pending
from detent.stores.sqlite.statements import NUMBERED, SQL, numbered
from detent.stores.sqlite.units import COMMITTED, Units
from detent.stores.sqlite.writing import Writing


class Transaction:
    """The write connection inside a transaction, and what was collected for it so far.

    Units are judged one by one and written together. When that fails, because the database refuses
    a row of one of them, everything is rolled back and done again `carefully`: each unit by itself,
    under a savepoint, so that only the one at fault is refused.
    """

    def __init__(self, connection: sqlite3.Connection, *, is_careful: bool) -> None:
        self.connection = connection
        self.is_careful = is_careful
        self.pending = Pending(connection)
        self.known = Known(connection, self.pending)
        self.writing = Writing(self.pending, self.known)
        self.units = Units(
            connection, self.pending, self.known, self.writing, is_careful=is_careful
        )
        self._ends = Ends(connection, self.pending, self.writing)
        self.may_be_claimable = False

    def commit(self, units: Sequence[Unit], now: int) -> tuple[Outcome, ...]:
        """The answers to these units, if the transaction holds."""
        if self.is_careful:
            return tuple(self._commit_alone(unit, now) for unit in units)
        if isinstance(units, Births) and self.pending.bear(units):
            self.writing.has_made_available = True
            return (COMMITTED,) * len(units)
        # They are looked at more than once, and some are made anew for everybody who looks.
        units = tuple(units)
        if len(units) < FEW:
            return tuple(self._commit_each(units, now))
        outcomes: list[Outcome] = []
        for like, some in parted(units):
            if like is not None and len(some) >= FEW and self._ends.take(like, some):
                outcomes += [COMMITTED] * len(some)
            else:
                outcomes += self._commit_each(some, now)
        return tuple(outcomes)

    def _commit_each(self, units: Sequence[Unit], now: int) -> list[Outcome]:
        if len(units) > 1 or len(units[0].new) + len(units[0].moves) > 1:
            self.known.look_up(_keys_of(units))
        commit = self.units.commit
        return [commit(unit, now) for unit in units]

    def finish(self) -> None:
        """Write what is left; the transaction can be committed then."""
        self.pending.flush()

    def execute(self, name: str, *values: Any) -> sqlite3.Cursor:
        """A named statement, after everything that was decided before it."""
        self.pending.flush()
        told = numbered(values) if name in NUMBERED else values
        return self.connection.execute(SQL[name], told)

    def execute_many(self, name: str, values: Sequence[Sequence[Any]]) -> None:
        """The same for many rows at once."""
        self.pending.flush()
        told = map(numbered, values) if name in NUMBERED else values
        self.connection.executemany(SQL[name], told)

    def ask(self, name: str, values: dict[str, Any]) -> list[Any]:
        """The rows that a statement with named values finds."""
        self.pending.flush()
        return self.connection.execute(SQL[name], values).fetchall()

    def _commit_alone(self, unit: Unit, now: int) -> Outcome:
        self.execute("savepoint")
        try:
            outcome = self.units.commit(unit, now)
            self.pending.flush()
        except (*UNFIT, BadHistory) as why:
            # Also where the lifecycle itself finds that what follows for a workflow cannot be.
            self.pending.forget()
            self.connection.execute(SQL["undo"])
            outcome = Rejected(str(why))
        self.connection.execute(SQL["release"])
        return outcome


def _keys_of(units: Sequence[Unit]) -> Iterator[Key]:
    """The jobs that these units are about."""
    for unit in units:
        for move in unit.moves:
            yield move.job.tenant, move.job.id
        for new in unit.new:
            if unit.command_id != new.job.id:
                yield new.job.tenant, new.job.id


def stored_at(connection: sqlite3.Connection, numbers: Sequence[int]) -> list[Stored]:
    """The jobs of these row numbers, in this order, with all that belongs to them."""
    found = {row[0]: stored for row, stored in stored_rows(connection, numbers)}
    for seq in numbers:
        if seq not in found:
            raise StoreCorrupt(f"the record in row {seq} has no body", seq=seq)
    return [found[seq] for seq in numbers]


def stored_rows(
    connection: sqlite3.Connection, numbers: Sequence[int]
) -> list[tuple[Sequence[Any], Stored]]:
    """The same in no order, each beside the row of the view `detent_stored` that it was made of."""
    return [(row, rows.stored_of(row, failed)) for row, failed in read_rows(connection, numbers)]


def head_rows(
    connection: sqlite3.Connection, numbers: Sequence[int]
) -> list[tuple[Sequence[Any], Stored]]:
    """The same without what may be large."""
    found = read_rows(connection, numbers, of="head")
    return [(row, rows.stored_of(row, failed)) for row, failed in found]


def read_rows(
    connection: sqlite3.Connection, numbers: Sequence[int], of: str = "stored"
) -> list[tuple[Sequence[Any], tuple[Failure, ...]]]:
    """The same, as rows of the view `detent_stored`, each beside its failures."""
    if not numbers:
        return []
    wanted = (msgspec.json.encode(numbers).decode(),)
    found = connection.execute(SQL[f"{of}_seqs"], wanted).fetchall()
    if all(row[rows.VERSION] == 1 for row in found):
        # What has never moved has never failed.
        return [(row, ()) for row in found]
    failures: defaultdict[int, list[Failure]] = defaultdict(list)
    for seq, *values in connection.execute(SQL[f"{of}_failures"], wanted):
        failures[seq].append(Failure(*values))
    return [(row, tuple(failures.get(row[0], ()))) for row in found]


def gate_of(connection: sqlite3.Connection, tenant: str, queue: str, kind: str) -> Gate:
    """The gates of a queue and of a type, as the one that a job of both stands behind."""
    first = _gate(connection, tenant, GateKind.QUEUE, queue)
    return joined(first, _gate(connection, tenant, GateKind.TYPE, kind))


def _gate(connection: sqlite3.Connection, tenant: str, kind: GateKind, name: str) -> Gate:
    found = connection.execute(SQL["gate"], (tenant, str.__str__(kind), name)).fetchone()
    if found is None:
        return OPEN
    return Gate(bool(found[0]), found[1], bool(found[2]))
