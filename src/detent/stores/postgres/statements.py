"""Named SQL statements, read once from the files beside this module.

    -- part: picked
    picked AS (SELECT ... LIMIT $wanted)

    -- name: claim
    WITH {{picked}} SELECT ...

A statement is looked up by its name; there is no other way to SQL in this package. Parts stand in
for words in double braces, and so do the columns of the lifecycle's own structs. Parameters have
names; PostgreSQL gets them by number, in the order in which they first appear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

import msgspec

from detent.stores import migrations
from detent.stores.postgres.columns import WORDS

_HEAD = re.compile(r"^-- (name|part): (\w+)\n", re.MULTILINE)
_WORD = re.compile(r"\{\{(\w+)(?: ((?:\{\{\w+\}\}|[^}])*))?\}\}")
_PARAMETER = re.compile(r"\$([a-z]\w*)")
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_HERE = files(__package__)


class Statement(msgspec.Struct, frozen=True):
    """The text for the server, and the names of its parameters in their order."""

    text: str
    names: tuple[str, ...]

    def values(self, told: Mapping[str, Any]) -> list[Any]:
        """The parameters in their order; one that is missing is a mistake of ours."""
        return [told[name] for name in self.names]


def _pieces() -> Iterator[tuple[str, str, str]]:
    for file in sorted((_HERE / "sql").iterdir(), key=lambda one: one.name):
        _, *found = _HEAD.split(file.read_text("utf-8"))
        yield from zip(found[::3], found[1::3], map(_bare, found[2::3]), strict=True)


def _bare(text: str) -> str:
    return _COMMENT.sub("", text).strip()


def _filled(text: str, parts: Mapping[str, str]) -> str:
    """The text with every word replaced, also inside what replaces it."""

    def fill(found: re.Match[str]) -> str:
        name, more = found[1], found[2] or ""
        return _filled(parts[name].replace("{{apart}}", more), parts)

    return _WORD.sub(fill, text)


def _compiled(text: str) -> Statement:
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    numbers = {name: number for number, name in enumerate(names, start=1)}
    return Statement(_PARAMETER.sub(lambda found: f"${numbers[found[1]]}", text), names)


def _statements() -> dict[str, Statement]:
    pieces = list(_pieces())
    parts = {**WORDS, **{name: text for kind, name, text in pieces if kind == "part"}}
    named = {name: text for kind, name, text in pieces if kind == "name"}
    if len({name for _, name, _ in pieces}) != len(pieces):
        raise ValueError("two statements or parts have one name")
    return {name: _compiled(_filled(text, parts)) for name, text in named.items()}


SQL: Final = _statements()
MIGRATIONS: Final = migrations.read(_HERE / "migrations")
STAMP: Final = (_HERE / "stamp.sql").read_text("utf-8")
"""What the tables say about themselves after a migration, with words to be filled in."""
