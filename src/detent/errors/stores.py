"""What is wrong with stores."""

from __future__ import annotations

from detent.errors.root import DetentError


class StoreError(DetentError):
    """A store cannot do what it was asked; nothing of the call was committed, unless it says so."""

    code = "store_error"


class BadName(StoreError):
    """A name with NUL, half a character, or a number beyond 64 bits: no database can keep it."""

    code = "bad_name"


class BadUrl(StoreError):
    """The address names no store that we know."""

    code = "bad_url"


class BatchTooLarge(StoreError):
    """More in one call than a store does at once; split it, nothing is lost by that."""

    code = "batch_too_large"


class ClockAhead(StoreError):
    """The caller's `now` is further ahead of the store's own clock than clocks may differ.

    Whoever asks again asks by the clock as it is then: it may have been set back in between.
    """

    code = "clock_ahead"
    retryable = True


class ReadTooLong(StoreError):
    """A question took longer to answer than anybody should wait; ask for less."""

    code = "read_too_long"


class SchemaAhead(StoreError):
    """The tables were made by newer code; this code must not write to them."""

    code = "schema_ahead"


class SchemaBehind(StoreError):
    """The tables were made by older code and must be migrated first."""

    code = "schema_behind"


class StoreBroken(StoreError):
    """After an I/O error an open store acknowledges nothing any more; only opening it again helps.

    Whether the call that met the error was committed is unknown until then.
    """

    code = "store_broken"


class StoreBusy(StoreError):
    """Somebody else held the lock for longer than we wait."""

    code = "store_busy"
    retryable = True


class StoreClosed(StoreError):
    """The store was not opened yet, or is closed already."""

    code = "store_closed"


class NoStore(StoreError):
    """This process works for a server, and has no database of its own to do that in."""

    code = "no_store"


class ServerAway(StoreError):
    """The server that keeps the jobs cannot be reached, or is busy: it will be asked again."""

    code = "server_away"
    retryable = True


class ServerRefused(StoreError):
    """The server does not let us in, or does not do that; `fields["why"]` is its own word."""

    code = "server_refused"


class StoreCorrupt(StoreError):
    """The database contradicts itself: stop, keep the file, restore from a backup."""

    code = "store_corrupt"


class StoreFull(StoreError):
    """No space is left where the database lives; what was committed is safe."""

    code = "store_full"
    retryable = True


class StoreOpen(StoreError):
    """This store object is open already; the database itself may be opened once more."""

    code = "store_open"


class StoreRefused(StoreError):
    """The database does not let us in: a wrong password, a missing database, a missing right."""

    code = "store_refused"


class StoreUnavailable(StoreError):
    """The database cannot be reached; whether the last call was committed may be unknown."""

    code = "store_unavailable"
    retryable = True


class UnfitUnit(StoreError):
    """Inside somebody's own transaction jobs come into being, and nothing else is changed."""

    code = "unfit_unit"


class UnknownConnection(StoreError):
    """Somebody's own connection, of a kind that we do not know how to use."""

    code = "unknown_connection"


class Unstorable(StoreError):
    """The database refused what was decided. Nothing was stored, and the fault is Detent's."""

    code = "unstorable"


class UnsupportedStore(StoreError):
    """A database, a version of one or a file system whose promises are too weak for ours."""

    code = "unsupported_store"


class WrongIsolation(StoreError):
    """The caller's transaction sees too little of others to promise that something is unique."""

    code = "wrong_isolation"
