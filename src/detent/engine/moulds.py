"""What all calls of a job with the same options share: checked and decided once, for all of them.

A mould is for plain jobs only: whatever has a key, a secret, a trace or a time of its own is asked
for one by one. What a mould makes is what would have been decided without it.
"""

from __future__ import annotations

from collections.abc import Sequence

from detent.engine import limits
from detent.engine.asks import Ask, body_of, command_of, is_keyed, lengths_of
from detent.engine.identity import Identity
from detent.lifecycle.event import By
from detent.lifecycle.job.stamping import Stamp
from detent.stores.births import Births, Mould

_LOCKED = "$detent"
_ESCAPE = "\\u"


def mould_of(ask: Ask, by: By) -> Mould | None:
    """The mould for such requests; nothing if there can be none, or no such job."""
    if is_keyed(ask) or ask.secret or ask.secret is None or ask.trace or ask.workflow:
        return None
    if lengths_of(ask):
        # Each of them expires at a moment of its own.
        return None
    limits.need_job(ask)
    stamp = Stamp.of(command_of(ask, "none yet"), by, ask.reason)
    return Mould(stamp, body_of(ask)) if isinstance(stamp, Stamp) else None


def is_plain(payload: str) -> bool:
    """Whether these arguments hold nothing that is locked, or could look so."""
    return _LOCKED not in payload and _ESCAPE not in payload


def moulded(calls: Sequence[tuple[Mould, str]], identity: Identity) -> Births:
    """New jobs of these moulds with these payloads, in order; they are not stored yet."""
    names, place, now = identity.births(len(calls))
    return Births(
        [(mould, names[at], now, place + at, payload) for at, (mould, payload) in enumerate(calls)]
    )
