"""The truth about a tree: its own SQLite file, synced to disk before anything is done.

An entry is an event of one instance, or a note about a slot (its breaker opened, it was removed).
Entries are numbered through; whoever reads them keeps a cursor. The file is used by one process at
a time, and the directory's lock says by which.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from detent.errors import BadHistory, BadJournal
from detent.lifecycle.event import Event
from detent.lifecycle.worker import Instance, fold
from detent.runtime.supervisor import sql
from detent.runtime.supervisor.entries import Entry, Note, SlotRow, entry_of
from detent.runtime.supervisor.locking import Lock

_log = logging.getLogger("detent.supervisor")
KEPT: Final = 1_000
"""How many ended instances are kept, at least until they are shipped."""
READ_MAX: Final = 1_000
_SLACK: Final = 100
"""How many more than that may be there before they are pruned: pruning at every end is waste."""
_DUMP_MAX: Final = 1_000_000


class Journal:
    """One open journal. Every call is short and synchronous: deciding and writing are one step."""

    def __init__(self, directory: Path, *, kept: int = KEPT) -> None:
        self.directory = directory
        self._kept = kept
        self._ended = 0
        self._guard = threading.RLock()
        self._lock = Lock(directory)
        try:
            self._db = _open(directory / "journal.sqlite")
        except BaseException:
            self._lock.release()
            raise

    def close(self) -> None:
        """Let the next supervisor in; once is enough, twice does no harm."""
        with self._guard:
            self._db.close()
            self._lock.release()

    def append(self, record: Instance, events: Sequence[Event], mono: float) -> int:
        """The events of one move and the record they leave; synced when this returns."""
        rows = [
            (record.slot, one.record, one.version, one.at, mono, msgspec.json.encode(one))
            for one in events
        ]
        with self._transaction() as db:
            db.executemany(sql.ADD_EVENT, rows)
            last = int(db.execute(sql.LAST).fetchone()[0])
            encoded = msgspec.json.encode(record)
            db.execute(sql.PUT_INSTANCE, (record.id, record.slot, record.ended_at, last, encoded))
        if record.ended_at is not None:
            self._count_end()
        return last

    def note(self, note: Note, at: int, mono: float) -> int:
        """Write down something about a slot that is no move of an instance."""
        with self._transaction() as db:
            row = (note.slot, note.instance, None, at, mono, msgspec.json.encode(note))
            db.execute(sql.ADD_NOTE, row)
            return int(db.execute(sql.LAST).fetchone()[0])

    def read(self, after: int, limit: int = READ_MAX) -> list[Entry]:
        """Entries behind the cursor, in order."""
        with self._reading() as db:
            rows = db.execute(sql.READ, (after, min(limit, READ_MAX))).fetchall()
            return [entry_of(row) for row in rows]

    def bounds(self) -> tuple[int, int]:
        """The first entry that can still be read, and the last one written."""
        with self._reading() as db:
            first, last = db.execute(sql.BOUNDS).fetchone()
            written = db.execute(sql.WRITTEN).fetchone()
        last = int(written[0]) if written else 0
        return int(first) if first is not None else last + 1, last

    def history(self, instance: str) -> list[Event]:
        """Every event of one instance."""
        with self._reading() as db:
            rows = db.execute(sql.HISTORY, (instance,)).fetchall()
            return [msgspec.json.decode(row[0], type=Event) for row in rows]

    def unended(self) -> list[Instance]:
        """Instances whose end is not written down, rebuilt from their events."""
        with self._reading() as db:
            ids = [str(row[0]) for row in db.execute(sql.UNENDED).fetchall()]
            found = (fold(self.history(one)) for one in ids)
            return [one for one in found if one is not None]

    def last_of(self, slot: str) -> Instance | None:
        """The newest instance of a slot that has ended."""
        with self._reading() as db:
            row = db.execute(sql.LAST_OF, (slot,)).fetchone()
            return None if row is None else msgspec.json.decode(row[0], type=Instance)

    def keep_dump(self, instance: str, text: str) -> None:
        """Store the stacks of an instance that would not end."""
        with self._transaction() as db:
            db.execute(sql.PUT_DUMP, (instance, text[:_DUMP_MAX]))

    def dump_of(self, instance: str) -> str | None:
        """The stacks that were stored with an instance."""
        with self._reading() as db:
            row = db.execute(sql.DUMP_OF, (instance,)).fetchone()
        return None if row is None else str(row[0])

    def slot(self, name: str) -> SlotRow | None:
        """What is kept about a slot."""
        with self._reading() as db:
            row = db.execute(sql.SLOT, (name,)).fetchone()
        return None if row is None else SlotRow(name, row[0], row[1], bool(row[2]))

    def put_slot(self, row: SlotRow) -> None:
        """Keep this about a slot."""
        told = (row.name, row.resume_id, row.attempts, row.suspended)
        with self._transaction() as db:
            db.execute(sql.PUT_SLOT, told)

    def drop_slot(self, name: str) -> None:
        """Forget a slot, and with it its resume id."""
        with self._transaction() as db:
            db.execute(sql.DROP_SLOT, (name,))

    def is_of_boot(self, boot: str) -> bool:
        """Whether the machine has not been started anew since this was last asked."""
        with self._transaction() as db:
            known = db.execute(sql.BOOT).fetchone()
            db.execute(sql.PUT_BOOT, (boot,))
        return known is None or known[0] == boot

    def cursor(self, name: str) -> int:
        """How far a reader has come. From its first question on, nothing is pruned before it."""
        with self._transaction() as db:
            db.execute(sql.BEGIN_CURSOR, (name,))
            return int(db.execute(sql.CURSOR, (name,)).fetchone()[0])

    def move_cursor(self, name: str, seq: int) -> None:
        """The reader has dealt with everything up to here; a cursor never goes back."""
        with self._transaction() as db:
            db.execute(sql.MOVE_CURSOR, (name, seq))

    def prune(self) -> int:
        """Forget the oldest ended instances beyond what is kept, if every reader is past them."""
        with self._transaction() as db:
            old = [row[0] for row in db.execute(sql.PRUNABLE, (self._kept,)).fetchall()]
            for statement in (sql.PRUNE_ENTRIES, sql.PRUNE_DUMPS, sql.PRUNE_INSTANCES):
                db.executemany(statement, [(one,) for one in old])
            db.execute(sql.PRUNE_NOTES)
        return len(old)

    def _count_end(self) -> None:
        self._ended += 1
        if self._ended >= min(_SLACK, self._kept):
            self._ended = 0
            try:
                self.prune()
            except BadJournal as error:
                # The end itself is written: whoever hears that it is not writes it for ever.
                _log.warning("what is old is forgotten later: %s", error)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._guard:
            try:
                yield self._db
            except (sqlite3.Error, msgspec.MsgspecError, BadHistory) as error:
                # What is in there need not be what was written: disks rot, and people edit.
                raise _broken(self.directory, error) from error


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.touch(mode=0o600, exist_ok=True)
        path.chmod(0o600)
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except (sqlite3.Error, OSError) as error:
        raise _broken(path.parent, error) from error
    try:
        _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        raise _broken(path.parent, error) from error
    except BadJournal:
        db.close()
        raise
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    for pragma in sql.PRAGMAS:
        db.execute(pragma)
    version: Any = db.execute("PRAGMA user_version").fetchone()[0]
    if version > sql.VERSION:
        raise BadJournal(
            f"The journal {path} was written by a newer Detent (version {version} of its tables,"
            f" this one knows {sql.VERSION}). Use that one, or another directory",
            version=version,
        )
    db.executescript(sql.SCHEMA)


def _broken(directory: Path, error: Exception) -> BadJournal:
    return BadJournal(
        f"The journal in {directory} cannot be used: {error}. Nothing was done that it does not"
        " tell. Make room, or move a damaged file away",
        directory=str(directory),
        error=str(error),
    )
