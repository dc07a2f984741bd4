"""Stores: records and their histories, behind one small protocol.

    async with open("sqlite:///var/detent.db") as store: ...

The scheme of the address chooses the database. Only the chosen one is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from detent import errors
from detent.extras import needs_extra
from detent.stores import checks
from detent.stores.api import Store
from detent.stores.migrations import Migration, Watch

__all__ = [
    "SCHEMES",
    "Migration",
    "Store",
    "checkup",
    "file_of",
    "open",
    "pending_migrations",
    "run_migrations",
]

SCHEMES = {
    "memory": "detent.stores.memory",
    "sqlite": "detent.stores.sqlite",
    "postgresql": "detent.stores.postgres",
}
"""Which module opens which scheme: each has `connect(url, clock, patience_s) -> Store`, and those
with tables have the functions of `detent.stores.migrations.Migrations`."""
_ALSO = {
    "postgres": "postgresql",
    **{f"postgresql+{driver}": "postgresql" for driver in ("asyncpg", "psycopg", "psycopg2")},
}
"""What hosts and SQLAlchemy write for it: their addresses can be handed over as they are."""
_NEAR = 0.6
"""How like a word must be to be meant: less, and who says mysql is asked for sqlite."""
_FILES = (".db", ".sqlite", ".sqlite3")
"""Which extra of ours brings a driver that not everybody needs."""


def open(  # noqa: A001
    url: str, *, clock: Callable[[], int] | None = None, patience_s: float | None = None
) -> Store:
    """The store at this address, not connected yet: enter it. `clock` gives microseconds.

    `patience_s` is how long calls try again while the database is away or held by others, if that
    is to be less than usual.
    """
    store: Store = _module(url).connect(url, clock, patience_s)
    return store


async def checkup(url: str, *, within_s: float) -> Sequence[checks.Check]:
    """What is as it should be about this database and what is not; nothing is changed.

    A database that does not answer in that time is not waited for.
    """
    module = _module(url)
    # Nobody else waits for what only this question needs.
    name = f"{module.__name__}.checkup"
    if find_spec(name) is None:
        module.connect(url, None)
        why = "everything is gone when the program ends, and no other program sees it"
        return [checks.notice("store", "in memory", why, "name a file, or a PostgreSQL server")]
    found: Sequence[checks.Check] = await import_module(name).checkup(url, within_s)
    return found


def file_of(url: str) -> Path | None:
    """The file that the store lives in, if it lives in one."""
    module = _module(url)
    found: Path | None = module.path_of(url) if hasattr(module, "path_of") else None
    return found


def pending_migrations(url: str) -> Sequence[Migration]:
    """The migrations that the tables at this address still need; nothing is changed."""
    return _of_tables("pending_migrations", url)


def run_migrations(url: str, watch: Watch = lambda _: None) -> Sequence[Migration]:
    """Bring the tables at this address up to date; the migrations that were run.

    `watch` is told of each before it is run, perhaps in another thread.
    """
    return _of_tables("run_migrations", url, watch)


def _of_tables(name: str, url: str, *more: Watch) -> Sequence[Migration]:
    module = _module(url)
    if not hasattr(module, name):
        # It has no tables. Its own `connect` still says what is wrong with the address.
        module.connect(url, None)
        return ()
    found: Sequence[Migration] = getattr(module, name)(url, *more)
    return found


def _module(url: object) -> ModuleType:
    if not isinstance(url, str):
        why = f"The address of a store is a text like 'sqlite:{url}', not a {type(url).__name__}"
        raise errors.BadUrl(why, known=tuple(SCHEMES))
    scheme, colon, _ = url.partition(":")
    name = _ALSO.get(scheme, scheme)
    if not colon or name not in SCHEMES:
        raise _unknown(scheme if colon else url)
    with needs_extra("postgres", f"A store at {name}:"):
        return import_module(SCHEMES[name])


def _unknown(scheme: str) -> errors.BadUrl:
    near = get_close_matches(scheme, SCHEMES, n=1, cutoff=_NEAR)
    meant = f"{near[0]}:" if near else f"sqlite:{scheme}" if scheme.endswith(_FILES) else None
    hint = f" Did you mean {meant}?" if meant else ""
    known = ", ".join(f"{one}:" for one in SCHEMES)
    where = "detent config show --origin says where commands, and Detent(), have it from"
    return errors.BadUrl(
        f"No store is called {scheme!r}.{hint} Known are {known}; {where}",
        scheme=scheme,
        known=tuple(SCHEMES),
        near=near[0] if near else None,
    )
