"""Checks the values of a command before anything is decided, so that all can be written.

Every string that ends up in an event must be writable as UTF-8, or no seal could ever cover it, and
must hold no NUL, which not every database can keep; every number must fit the columns of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detent.lifecycle.job import commands as c
from detent.lifecycle.job.guards import Unmet
from detent.lifecycle.job.record import Context
from detent.lifecycle.profile import SPAN_US_MAX

NAME_MAX = 255
REASON_MAX = 2_000
INSTANT_MAX = 2**62
"""Half of what 64 bits hold, so that no moment plus a length can ever leave them."""
TRIES_MAX = 100_000
_PRIORITY_MAX = 2**31 - 1
NUL = "\0"
_Rule = Callable[[Any], str | None]


def ill_formed(command: c.Command, now: int, ctx: Context) -> Unmet | None:
    """The first value that cannot be, and what it could be instead; or `None`."""
    for field, rule in _RULES[type(command)]:
        fault = rule(getattr(command, field))
        if fault is not None:
            return Unmet("bad_value", f"{field} {fault}")
    return ill_timed(now, ctx)


def ill_timed(now: int, ctx: Context) -> Unmet | None:
    """The same for the time and for whoever asks; what is usual is told at a glance."""
    asker = ctx.command_id + ctx.by.id
    if ctx.reason is None and ctx.command_id and asker.isascii() and len(asker) <= NAME_MAX:
        place = ctx.place
        placed = place is None or (type(place) is int and 0 <= place <= INSTANT_MAX)
        if placed and type(now) is int and 0 <= now <= INSTANT_MAX and NUL not in asker:
            return None
    for field, value, rule in (
        ("now", now, _instant),
        ("place", ctx.place, _instant_or_none),
        ("command_id", ctx.command_id, _name),
        ("the actor's id", ctx.by.id, _name_or_empty),
        ("reason", ctx.reason, _reason),
    ):
        fault = rule(value)
        if fault is not None:
            return Unmet("bad_value", f"{field} {fault}")
    return None


def is_plain_name(value: Any) -> bool:
    """Whether it is well formed at a glance: plain text is told by a flag, without looking."""
    return (
        type(value) is str and value.isascii() and 0 < len(value) <= NAME_MAX and NUL not in value
    )


def _name(value: Any) -> str | None:
    if is_plain_name(value):
        return None
    if isinstance(value, str) and 0 < len(value) <= NAME_MAX and _is_writable(value):
        return None
    return f"must be a text of 1 to {NAME_MAX} characters that UTF-8 can write, without NUL"


def _name_or_empty(value: Any) -> str | None:
    return None if value == "" else _name(value)


def _name_or_none(value: Any) -> str | None:
    return None if value is None else _name(value)


def _reason(value: Any) -> str | None:
    if value is None or (
        isinstance(value, str) and len(value) <= REASON_MAX and _is_writable(value)
    ):
        return None
    return f"must be a text of at most {REASON_MAX} characters that UTF-8 can write, without NUL"


def _is_writable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return NUL not in value


def _instant(value: Any) -> str | None:
    if isinstance(value, int) and 0 <= value <= INSTANT_MAX:
        return None
    return "must be microseconds since the epoch, from 0 to 2**62"


def _instant_or_none(value: Any) -> str | None:
    return None if value is None else _instant(value)


def _span(value: Any) -> str | None:
    if isinstance(value, int) and 0 < value <= SPAN_US_MAX:
        return None
    return "must be a positive number of microseconds, at most 100 years"


def _span_or_none(value: Any) -> str | None:
    return None if value is None else _span(value)


def _delay(value: Any) -> str | None:
    return None if value == 0 else _span(value)


def _priority(value: Any) -> str | None:
    if isinstance(value, int) and -_PRIORITY_MAX <= value <= _PRIORITY_MAX:
        return None
    return "must be a whole number within 32 bits"


def _tries_or_none(value: Any) -> str | None:
    if value is None or (isinstance(value, int) and 1 <= value <= TRIES_MAX):
        return None
    return f"must be a whole number from 1 to {TRIES_MAX}"


def _flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _limits(value: Any) -> str | None:
    if value is None:
        return None
    for field in value.__struct_fields__:
        limit = getattr(value, field)
        if limit is not None and _span(limit):
            return f"{field} {_span(limit)}, or None for no limit"
    return None


_TAKEN = (("lease", _name), ("holder", _name), ("lease_us", _span_or_none))
_RULES: dict[type, tuple[tuple[str, _Rule], ...]] = {
    c.Enqueue: (
        ("id", _name),
        ("tenant", _name_or_empty),
        ("profile", _name),
        ("queue", _name),
        ("priority", _priority),
        ("allowed", _tries_or_none),
        ("losses_allowed", _tries_or_none),
        ("held", _flag),
        ("run_at", _instant_or_none),
        ("expires_at", _instant_or_none),
        ("deadlines", _limits),
        ("rerun_of", _name_or_none),
        ("workflow", _name_or_none),
        ("step", _name_or_none),
    ),
    c.Claim: _TAKEN,
    c.Dispatch: _TAKEN,
    c.Acknowledge: (),
    c.Receive: (("start_us", _span),),
    c.Complete: (("digest", _name_or_none),),
    c.Fail: (("code", _name), ("digest", _name_or_none)),
    c.Refuse: (("code", _name),),
    c.Snooze: (("delay_us", _delay),),
    c.HandBack: (("delay_us", _delay),),
    c.Lose: (("code", _name_or_none),),
    c.ConfirmCancel: (),
    c.SeeCancel: (),
    c.Interrupt: (),
    c.Checkpoint: (("digest", _name),),
    c.Cancel: (),
    c.Hold: (),
    c.Activate: (),
    c.Reprioritise: (("priority", _priority),),
    c.Reschedule: (("run_at", _instant),),
    c.Move: (("queue", _name),),
    c.Annotate: (("digest", _name),),
    c.Erase: (),
    c.Drop: (),
}
