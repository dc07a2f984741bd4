"""What PostgreSQL says when something is wrong, in our words, and what we do about it."""

from __future__ import annotations

from typing import Final

import asyncpg
from asyncpg import exceptions as pg

from detent.errors import (
    SchemaBehind,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)

FAULTS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Everything that a call to the database may raise."""
UNFIT: Final = (
    pg.IntegrityConstraintViolationError,
    pg.DataError,
    pg.ProgramLimitExceededError,
    pg.RaiseError,
    # What the driver or we cannot write down: a number too large, half a character, a NUL.
    ValueError,
)
"""Somebody handed in what the database does not take; everything else can still be committed."""
_LOST: Final = (
    OSError,
    # The driver lost its place in the conversation, as it may when a connection is cut.
    asyncpg.InternalClientError,
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    # We were silent for too long inside a transaction, which is rolled back.
    pg.IdleInTransactionSessionTimeoutError,
    pg.TooManyConnectionsError,
    pg.ReadOnlySQLTransactionError,
)
_CLASH: Final = (pg.DeadlockDetectedError, pg.SerializationError)
_RACES: Final = frozenset(
    {"jobs_pkey", "idempotency_pkey", "workflows_pkey", "steps_pkey", "jobs_holding"}
)
_REFUSED: Final = (
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.InsufficientPrivilegeError,
)
_POOLER: Final[tuple[tuple[type[BaseException], str, str], ...]] = (
    (pg.ProtocolViolationError, "unsupported startup parameter", "pgbouncer=yes"),
    (pg.DuplicatePreparedStatementError, "", "prepare=no"),
    (pg.InvalidSQLStatementNameError, "", "prepare=no"),
)
"""What a pooler between us and the server cannot do, by its words, and what spares us that."""
_WORDS: Final[dict[type[BaseException], tuple[type[StoreError], str]]] = {
    pg.DiskFullError: (StoreFull, "The server's disk is full; nothing was committed"),
    pg.LockNotAvailableError: (StoreBusy, "Somebody's open transaction holds what this needs"),
    pg.QueryCanceledError: (StoreBusy, "The server took too long and was told to stop"),
    pg.UndefinedTableError: (SchemaBehind, "The tables are missing; run `detent migrate`"),
    pg.InvalidSchemaNameError: (SchemaBehind, "The tables are missing; run `detent migrate`"),
    pg.UndefinedColumnError: (SchemaBehind, "The tables are too old; run `detent migrate`"),
    pg.DataCorruptedError: (StoreCorrupt, "The database is damaged; restore it from a backup"),
    pg.IndexCorruptedError: (StoreCorrupt, "An index is damaged; rebuild it with REINDEX"),
}


def is_lost(error: BaseException) -> bool:
    """Whether the connection or its server is gone: the call may be made again on another."""
    if isinstance(error, TimeoutError) or _spared_by(error) is not None:
        return False
    if isinstance(error, asyncpg.InterfaceError):
        return not isinstance(error, ValueError)
    return isinstance(error, _LOST)


def is_clash(error: BaseException) -> bool:
    """Whether another transaction was in the way: the same again will see what it did."""
    if isinstance(error, pg.UniqueViolationError):
        return error.constraint_name in _RACES
    return isinstance(error, _CLASH)


def is_held_twice(error: BaseException) -> bool:
    """Whether its holder has that lease already: for another job, or from the same wish."""
    is_unique = isinstance(error, pg.UniqueViolationError)
    return is_unique and getattr(error, "constraint_name", None) == "jobs_holding"


def translated(error: BaseException) -> StoreError:
    """The error that a caller hears; the original stays attached as its cause."""
    sqlstate = getattr(error, "sqlstate", None)
    for kind, (ours, words) in _WORDS.items():
        if isinstance(error, kind):
            return ours(f"{words} ({error})", sqlstate=sqlstate)
    if (option := _spared_by(error)) is not None:
        # The driver's own hint is about options that nobody can set here.
        why, *_ = str(error).splitlines()
        said = f"A pooler before PostgreSQL cannot do that: {why}; say {option} in the address"
        return StoreRefused(said, sqlstate=sqlstate)
    if isinstance(error, _REFUSED):
        fix = "check the user, the password and the database in the address"
        return StoreRefused(f"The database does not let us in: {error}; {fix}", sqlstate=sqlstate)
    if isinstance(error, TimeoutError):
        return StoreUnavailable("The server did not answer in time; the call may be committed")
    if is_lost(error):
        fix = "check that it runs, and the host and port in the address"
        return StoreUnavailable(f"PostgreSQL cannot be reached: {error}; {fix}", sqlstate=sqlstate)
    return StoreError(f"PostgreSQL refuses what it was asked: {error}", sqlstate=sqlstate)


def _spared_by(error: BaseException) -> str | None:
    """What to say in the address, if a pooler is in the way."""
    fits = (one for kind, said, one in _POOLER if isinstance(error, kind) and said in str(error))
    return next(fits, None)
