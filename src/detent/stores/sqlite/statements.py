"""Named SQL statements, read once from the files beside this module.

    -- name: job_head
    SELECT ...

A statement is looked up by its name; there is no other way to SQL in this package.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from typing import Final

from detent.stores.migrations import read
from detent.stores.sqlite.legality import fill

__all__ = ["MIGRATIONS", "SQL", "split"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_HERE = files(__package__)


def split(script: str) -> Iterator[str]:
    """The statements of a script one by one; the body of a trigger stays in one piece."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted((_HERE / "sql").iterdir(), key=lambda one: one.name):
        _, *parts = _NAME.split(file.read_text("utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"two statements are called {name}")
            found[name] = fill(text.strip())
    return found


SQL: Final = _statements()
MIGRATIONS: Final = read(_HERE / "migrations")
