"""What can be wrong with a file: where it lies, its room, its log, its tables, and its pages.

Nothing is made or changed: a place that is not good is not even touched.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from detent.errors import DetentError, StoreCorrupt
from detent.stores.alike import wall_clock
from detent.stores.checks import Check, Grade, fine, harm, notice, refused, sealed, warning
from detent.stores.migrations import checked
from detent.stores.sqlite import place
from detent.stores.sqlite.connection import need_version, open_as_it_is
from detent.stores.sqlite.faults import translated
from detent.stores.sqlite.growing import LARGE
from detent.stores.sqlite.migrate import look
from detent.stores.sqlite.statements import MIGRATIONS, SQL
from detent.stores.sqlite.threads import beside

_MIB: Final = 1 << 20
_FREE_LEAST: Final = 128 * _MIB
"""With less than this the log alone may not fit, which may grow to 64 MiB between checkpoints."""
_FREE_GOOD: Final = 1_024 * _MIB
_STEPS: Final = 10_000
"""How much of the quick look is done between two looks at the clock."""


async def checkup(url: str, within_s: float) -> list[Check]:
    """Everything that can be found out about this file."""
    path = place.path_of(url)
    return await beside(partial(_looked, path, within_s))


def _looked(path: Path, within_s: float) -> list[Check]:
    store = _placed(path)
    if store.grade is Grade.BAD:
        return [store]
    # Without room nothing can even be opened, and that must not be taken for damage.
    found = [store, room(path, shutil.disk_usage(path.parent).free), log(path)]
    try:
        tables = checked(MIGRATIONS, look(path))
        found.append(tables)
        with closing(open_as_it_is(path)) as connection:
            found += [_journal(connection), _pages(connection, within_s)]
            # Tables that are not as we know them are not asked.
            found += list(_seals(connection)) if tables.grade is not Grade.BAD else []
    except sqlite3.Error as error:
        return [*found, _unreadable(translated(error))]
    except DetentError as error:
        return [*found, _unreadable(error)]
    return found


def _unreadable(error: DetentError) -> Check:
    if isinstance(error, StoreCorrupt):
        why = "what cannot be read any more is gone, unless there is a backup"
        mend = "keep the file as it is, and restore a backup elsewhere"
        return refused("tables", error, why, mend)
    why = "workers and programs cannot use it either"
    mend = "see whether the disk has room and is sound, and who else has the file open: lsof"
    return refused("tables", error, why, mend)


def _placed(path: Path) -> Check:
    try:
        need_version()
        place.need_good(path)
        for name in (path, *place.lock_paths(path)):
            # To touch what is not there would make it.
            if name.exists() or name.is_symlink():
                place.touch_private(name)
    except DetentError as error:
        why = "a file that cannot be locked, or that others may change, keeps no promise"
        return refused("store", error, why, "name a file of this user, on a local disk")
    if not path.exists():
        why = "program, workers and commands that are told different files never meet"
        mend = "detent migrate makes one here; if there should be one, check the folder and address"
        return harm("store", f"there is no file {path} yet", why, mend)
    version = f"SQLite {sqlite3.sqlite_version}, {path}"
    why = "one machine and one disk: when they are gone, so are the jobs since the last backup"
    return notice("store", version, why, "back it up daily; more machines need PostgreSQL")


def room(path: Path, free: int) -> Check:
    """Whether there is room on the disk for what is to come."""
    size = path.stat().st_size
    found = f"{free // _MIB} MiB free beside a file of {size // _MIB} MiB"
    why = "without room nothing can be enqueued or ended: calls fail with store_full"
    mend = "make room, or let ended jobs go with detent prune"
    if free < _FREE_LEAST:
        return harm("disk", found, why, mend)
    if free < max(_FREE_GOOD, size):
        return warning("disk", found, f"{why}; a backup beside it has no room either", mend)
    return fine("disk", found)


def log(path: Path) -> Check:
    """Whether the log is taken into the file in time."""
    file = path.with_name(f"{path.name}-wal")
    size = file.stat().st_size if file.exists() else 0
    if size < LARGE:
        return fine("log", f"{size // _MIB} MiB in {file.name}")
    why = "somebody reads for so long that it cannot be taken into the file: reading gets slow"
    mend = "end whoever has the file open in a long transaction: lsof names them"
    return warning("log", f"{size // _MIB} MiB in {file.name}", why, mend)


def _journal(connection: sqlite3.Connection) -> Check:
    mode = connection.execute(SQL["get_journal_mode"]).fetchone()[0]
    ours = "Detent writes with synchronous=FULL, and reads that back whenever it opens the file"
    if mode == "wal":
        return fine("journal", f"write-ahead log; {ours}")
    why = "somebody else has set it: readers and writers wait for each other meanwhile"
    mend = "let nobody else set PRAGMA journal_mode; the next worker that starts sets it back"
    return warning("journal", f"journal_mode={mode}", why, mend)


def _pages(connection: sqlite3.Connection, within_s: float) -> Check:
    end = time.monotonic() + within_s
    connection.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    try:
        said = connection.execute(SQL["quick_check"]).fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        found = f"no fault within {within_s:g} s, then it was broken off"
        return fine("pages", f"{found}: detent verify looks at everything")
    finally:
        connection.set_progress_handler(None, 0)
    if said == "ok":
        return fine("pages", "a quick look at the whole file finds no fault")
    why = "the disk, or a copy that was taken while it was written to, has damaged the file"
    mend = "stop everything, keep the file as it is, and restore the last good backup"
    return harm("pages", " ".join(str(said).split()), why, mend)


def _seals(connection: sqlite3.Connection) -> Iterator[Check]:
    behind, at = connection.execute(SQL["unsealed"]).fetchone()
    yield sealed(max(behind, 0), 0 if at is None else wall_clock() - at)
