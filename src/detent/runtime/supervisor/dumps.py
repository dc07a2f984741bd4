"""The stacks that are kept in a journal, read beside the supervisor that writes it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from detent.errors import BadJournal

_LAST: Final = (
    "SELECT instance.id, dump.stacks FROM dump JOIN instance ON instance.id = dump.instance"
    " WHERE instance.slot = ? OR substr(instance.id, 1, ?) = ? ORDER BY instance.last_seq DESC"
    " LIMIT ?"
)


def dumps_in(directory: Path, which: str, limit: int) -> Iterator[tuple[str, str]]:
    """Instance and stacks, the newest first, by a slot or the beginning of an instance's id."""
    path = directory / "journal.sqlite"
    if not path.exists():
        return
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
            yield from db.execute(_LAST, (which, len(which), which, limit)).fetchall()
    except sqlite3.Error as error:
        why = f"The journal in {directory} cannot be read: {error}"
        raise BadJournal(why, directory=str(directory), error=str(error)) from error
