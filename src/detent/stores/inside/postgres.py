"""PostgreSQL: the unit is sent to an SQL function as JSON, and its answer read.

This module knows no driver, and not the store either, which would bring one along.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from detent.errors import (
    SchemaBehind,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreRefused,
    WrongIsolation,
)
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.retry import RetryPolicy
from detent.stores.shapes import (
    Body,
    Committed,
    Idempotency,
    Move,
    New,
    Outcome,
    Own,
    Rejected,
    Stale,
    Taken,
    Unique,
    Unit,
    key_of,
)

_DEFAULT_RETRY: Final = RetryPolicy()
_BEHIND: Final = "A function of ours is missing; run `detent migrate`"
_BUSY: Final = "Somebody else's transaction was in the way; roll back and try again"
_WORDS: Final[dict[str, tuple[type[StoreError], str]]] = {
    "42883": (SchemaBehind, _BEHIND),
    "3F000": (SchemaBehind, _BEHIND),
    "42P01": (SchemaBehind, _BEHIND),
    "42501": (StoreRefused, "This role has no right to enqueue; grant it what the store has"),
    "40001": (StoreBusy, _BUSY),
    "40P01": (StoreBusy, _BUSY),
    "55P03": (StoreBusy, _BUSY),
    "57014": (StoreBusy, _BUSY),
    "53100": (StoreFull, "The server's disk is full; nothing was committed"),
}
"""What the server says about us, by its codes; everything else is between driver and caller."""


class _Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """A body without what is at its default."""

    type: str
    payload: str
    meta: str
    tags: tuple[str, ...] = ()
    retry: RetryPolicy | None = None
    schema: str | None = None
    key: str | None = None


class _New(msgspec.Struct, frozen=True, omit_defaults=True):
    job: Job
    events: tuple[Event, ...]
    body: _Body
    wake_at: int | None = None
    unique: Unique | None = None
    idempotency: Idempotency | None = None


class _Move(msgspec.Struct, frozen=True, omit_defaults=True):
    """An end without what it cannot bring."""

    version: int
    job: Job
    events: tuple[Event, ...]
    wake_at: int | None = None
    lease: str | None = None
    result: str | None = None
    result_until: int | None = None


class _Unit(msgspec.Struct, frozen=True, omit_defaults=True):
    command_id: str
    new: tuple[_New, ...] = ()
    moves: tuple[_Move, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    """What the function says about one unit."""

    outcome: str
    what: str = ""
    by: Job | None = None
    differs: bool = False
    why: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[_Answer]).decode


def told(unit: Unit) -> str | Rejected:
    """The unit as the function takes it, or why no database could."""
    try:
        news = tuple(_new(new) for new in unit.new)
        return _encode([_Unit(unit.command_id, news, tuple(map(_move, unit.moves)))]).decode()
    except (UnicodeEncodeError, OverflowError) as error:
        return Rejected(str(error))


def _new(new: New) -> _New:
    return _New(new.job, new.events, _body(new.body), new.wake_at, new.unique, new.idempotency)


def _move(move: Move) -> _Move:
    told = (move.version, move.job, move.events, move.wake_at, move.lease, move.result)
    return _Move(*told, move.result_until)


def _body(body: Body) -> _Body:
    retry = None if body.retry == _DEFAULT_RETRY else body.retry
    return _Body(body.type, body.payload, body.meta, body.tags, retry, body.schema, body.key)


def answered(said: str, unit: Unit) -> Outcome:
    """The function's answer in the words of the protocol."""
    [answer] = _decode(said)
    match answer.outcome:
        case "committed":
            return Committed()
        case "own":
            return Own()
        case "taken" if answer.by is not None:
            return Taken(answer.what, answer.by, answer.differs)
        case "rejected":
            return Rejected(answer.why)
        case "stale":
            return Stale(key_of(unit.moves[0].job), answer.by)
        case _:
            raise _refusal(answer)


def _refusal(answer: _Answer) -> StoreError:
    if answer.outcome == "isolation":
        return WrongIsolation(
            f"A transaction that is {answer.why} does not see who was faster, so it cannot enqueue"
            " with a unique or an idempotency key; use READ COMMITTED",
            isolation=answer.why,
        )
    return StoreBusy(
        f"Somebody else's transaction was in the way ({answer.why}); yours can go on",
        why=answer.why,
    )


@contextmanager
def in_our_words() -> Iterator[None]:
    """Errors of any driver that are about us become ours; what it has to say otherwise stays."""
    try:
        yield
    except Exception as error:
        ours = _WORDS.get(_sqlstate(error) or "")
        if ours is None:
            raise
        kind, words = ours
        raise kind(f"{words} ({error})", sqlstate=_sqlstate(error)) from error


def _sqlstate(error: BaseException | None) -> str | None:
    """The code of the server, however deep the driver's error is wrapped."""
    while error is not None:
        for name in ("sqlstate", "pgcode"):
            found: Any = getattr(error, name, None)
            if isinstance(found, str):
                return found
        error = getattr(error, "orig", None) or error.__cause__
    return None
