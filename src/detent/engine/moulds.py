"""What all calls of a job with the same options share: checked and decided once, for all of them.

A mould is for plain jobs only: whatever has a key, a secret, a trace or a time of its own is asked
for one by one. What a mould makes is what would have been decided without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.engine import limits
from detent.engine.asks import Ask, body_of, command_of, is_keyed
from detent.engine.identity import Identity
from detent.lifecycle.event import By
from detent.lifecycle.job.stamping import Stamp
from detent.stores.api import Body, New, Unit

__all__ = ["Mould", "moulded"]

_LOCKED = "$detent"
_ESCAPE = "\\u"


class Mould:
    """Makes jobs that differ in their arguments alone."""

    __slots__ = ("_after", "_stamp", "_type")

    def __init__(self, ask: Ask, stamp: Stamp) -> None:
        body = body_of(ask)
        self._type = body.type
        self._after = (body.meta, body.tags, body.retry, body.schema, body.key)
        self._stamp = stamp

    @classmethod
    def of(cls, ask: Ask, by: By) -> Mould | None:
        """The mould for such requests; nothing if there can be none, or no such job."""
        if is_keyed(ask) or ask.secret or ask.secret is None or ask.trace or ask.workflow:
            return None
        limits.need_job(ask)
        stamp = Stamp.of(command_of(ask, "none yet"), by, ask.reason)
        return cls(ask, stamp) if isinstance(stamp, Stamp) else None

    def unit(self, payload: str, job_id: str, now: int, place: int) -> Unit:
        """A new job. Its id names the command too: nobody else has given it."""
        stamp = self._stamp
        born = stamp.born(job_id, job_id, now, place)
        body = Body(self._type, payload, *self._after)
        return Unit(job_id, (), (New(born.job, born.events, body, stamp.wake_at(now)),))


def is_plain(payload: str) -> bool:
    """Whether these arguments hold nothing that is locked, or could look so."""
    return _LOCKED not in payload and _ESCAPE not in payload


def moulded(calls: Sequence[tuple[Mould, str]], identity: Identity) -> list[Unit]:
    """New jobs of these moulds with these payloads, in order; they are not stored yet."""
    names, first, now = identity.births(len(calls))
    return [
        mould.unit(payload, names[at], now, first + at) for at, (mould, payload) in enumerate(calls)
    ]
