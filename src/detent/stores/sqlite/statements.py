"""Named SQL statements, read once from the files beside this module.

    -- name: job_head
    SELECT ...

A statement is looked up by its name; there is no other way to SQL in this package.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from detent.stores.migrations import read
from detent.stores.sqlite.legality import fill

_NAME = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
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
    """What several statements of a file share is a part of it, called by its name in braces."""
    found: dict[str, str] = {}
    for file in sorted((_HERE / "sql").iterdir(), key=lambda one: one.name):
        _, *pieces = _NAME.split(file.read_text("utf-8"))
        parts: dict[str, str] = {}
        for kind, name, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            if name in found:
                raise ValueError(f"two statements are called {name}")
            into = parts if kind == "part" else found
            into[name] = fill(_with(parts, text.strip()))
    return found


def _with(parts: Mapping[str, str], text: str) -> str:
    for name, part in parts.items():
        text = text.replace(f"{{{{{name}}}}}", part)
    return text


SQL: Final = _statements()
NUMBERED: Final = frozenset(name for name, text in SQL.items() if re.search(r"\?\d", text))
"""Those whose parameters have numbers, because some are needed twice."""
_NUMBERS: Final = tuple(map(str, range(1, 100)))
MIGRATIONS: Final = read(_HERE / "migrations")


def numbered(values: Iterable[Any]) -> dict[str, Any]:
    """The parameters of such a statement; from Python 3.14 on they cannot be told as a sequence."""
    return dict(zip(_NUMBERS, values, strict=False))
