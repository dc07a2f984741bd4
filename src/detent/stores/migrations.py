"""Versions of a database's tables: what is known, what is missing, who may still use what is there.

A migration is a file `NNNN_name.sql` with a line `-- min_code: N`, and a line `-- takes: ...` where
it reads or writes all jobs. The version of the code is that of the newest migration it brings. The
tables remember their own version and the oldest code that may use them, so that a rolling deploy
works in two steps: a migration that only adds something keeps `min_code` low, and running code goes
on beside it; a later one that takes something away raises it, and code older than that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib.resources.abc import Traversable
from itertools import pairwise
from typing import Protocol, TypeAlias

import msgspec

from detent.errors import SchemaAhead, SchemaBehind
from detent.stores.checks import Check, fine, harm, refused, warning

_MIN_CODE = re.compile(r"^-- min_code: (\d+)$", re.MULTILINE)
_TAKES = re.compile(r"^-- takes: (.+)$", re.MULTILINE)
_NAME = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(msgspec.Struct, frozen=True):
    """One step of the tables. `sql` is everything that has to be run, its own book-keeping too.

    `takes` says how long that takes where it takes long, and what others can do meanwhile.
    """

    version: int
    name: str
    min_code: int
    sql: str
    takes: str = ""

    @property
    def file(self) -> str:
        """The name of the file without its ending, which is what people call it."""
        return f"{self.version:04}_{self.name}"


Watch: TypeAlias = Callable[[Migration], None]
"""Told of each migration before it is run."""


class TableVersion(msgspec.Struct, frozen=True):
    """What tables say about themselves; zeros where there are none yet."""

    version: int = 0
    min_code: int = 0


class Migrations(Protocol):
    """What the module of a store with tables offers beside `connect(url, clock)`.

    A store that has no tables offers neither function.
    """

    def pending_migrations(self, url: str) -> Sequence[Migration]:
        """What would be run, oldest first. Changes and creates nothing.

        `SchemaAhead` when the tables no longer admit this code.
        """
        ...

    def run_migrations(self, url: str, watch: Watch = ...) -> Sequence[Migration]:
        """Run what is pending, in one transaction; what was run. Of two at once, one does it."""
        ...


def read(folder: Traversable) -> tuple[Migration, ...]:
    """The migrations of a folder, oldest first; `ValueError` for what could not be deployed."""
    files = sorted(folder.iterdir(), key=lambda one: one.name)
    found = tuple(_parsed(one.name, one.read_text("utf-8")) for one in files)
    if [one.version for one in found] != list(range(1, len(found) + 1)):
        raise ValueError("versions of migrations are 1, 2, 3 and so on, one file each")
    for before, after in pairwise(found):
        if after.min_code < before.min_code:
            raise ValueError(f"{after.file} would let code back in that was refused before")
    return found


def missing(known: Sequence[Migration], tables: TableVersion) -> list[Migration]:
    """The known migrations that the tables have not seen; `SchemaAhead` if it is the other way."""
    newest = known[-1].version
    if tables.min_code > newest:
        raise SchemaAhead(
            f"The tables have version {tables.version} and need code of version {tables.min_code}"
            f" or newer, this code has {newest}; update Detent",
            version=tables.version,
            known=newest,
            min_code=tables.min_code,
        )
    return [one for one in known if one.version > tables.version]


def checked(known: Sequence[Migration], tables: TableVersion) -> Check:
    """Whether this code and these tables go together."""
    if tables.version == 0:
        why = "nothing can be kept there, and commands refuse to look"
        return harm("tables", "the database has no tables of Detent", why, "detent migrate")
    try:
        pending = missing(known, tables)
    except SchemaAhead as error:
        return refused("tables", error, "this code would misread them", "upgrade Detent here")
    if pending:
        names = ", ".join(one.file for one in pending)
        why = "programs and commands refuse tables that are older than their code"
        return harm("tables", f"version {tables.version}, pending: {names}", why, "detent migrate")
    if tables.version > known[-1].version:
        found = f"version {tables.version}, this code knows {known[-1].version}"
        why = "newer code has been here; this one may go on beside it, but not for ever"
        return warning("tables", found, why, "finish the deployment: upgrade Detent here")
    return fine("tables", f"version {tables.version}, which is current")


def need_all(known: Sequence[Migration], tables: TableVersion) -> None:
    """`SchemaBehind` unless nothing is missing."""
    if missing(known, tables):
        newest = known[-1].version
        raise SchemaBehind(
            f"{_behind(tables.version, newest)}; run detent migrate --store URL, with its address",
            version=tables.version,
            known=newest,
        )


def _behind(version: int, newest: int) -> str:
    if version == 0:
        return "This database has no tables of Detent yet"
    return f"The tables of this database have version {version}, this code needs {newest}"


def _parsed(file: str, text: str) -> Migration:
    name, asked = _NAME.fullmatch(file), _MIN_CODE.findall(text)
    if name is None or len(asked) != 1:
        raise ValueError(f"{file}: a migration is NNNN_name.sql with one line `-- min_code: N`")
    version, min_code = int(name[1]), int(asked[0])
    if min_code > version:
        raise ValueError(f"{file}: not even the code that brings it could use the result")
    takes = _TAKES.search(text)
    return Migration(version, name[2], min_code, text, "" if takes is None else takes[1])
