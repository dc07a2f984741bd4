"""Every number that bounds what one job or one call may bring, and the errors that say so.

The limits are there for everybody else: a payload is read at every claim, a name stands in an
index, a batch holds the lock. Each error says what was too much, why that matters and what to do.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import msgspec

from detent.engine.asks import Ask
from detent.errors import (
    BadName,
    LimitError,
    NameTooLong,
    NumberTooLarge,
    PayloadTooDeep,
    PayloadTooLarge,
    ResultTooLarge,
    TooMany,
)
from detent.lifecycle.job.values import NAME_MAX

PAYLOAD_BYTES_MAX: Final = 1_048_576
"""Of a job's arguments, as JSON."""
META_BYTES_MAX: Final = 65_536
"""Of a job's metadata, as JSON."""
RESULT_BYTES_MAX: Final = 16_777_216
"""Of a result or a checkpoint, as JSON: read once, so it may be larger than what goes in."""
DEPTH_MAX: Final = 64
"""How deep lists and objects may be nested in arguments and metadata."""
NAME_CHARS_MAX: Final = NAME_MAX
"""Of a type, a queue, a tenant, a tag, a limit key, an idempotency key."""
TAGS_MAX: Final = 50
"""On one job."""
BATCH_MAX: Final = 10_000
"""Jobs in one call to enqueue many."""
FOLLOWERS_MAX: Final = 500
"""Jobs that are enqueued together with the end of another one."""
LINE_CHARS_MAX: Final = 16_384
"""Of one log line; what is longer is cut there, because a log must never fail a job."""
LOG_LINES_MAX: Final = 10_000
"""That one run may say; of what comes after them only the number is kept."""
LOG_CHARS_MAX: Final = 2_097_152
"""The same, counted in characters."""

_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ONE_MORE_OR_LESS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_DIGITS_ALIKE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE: Final = b"e000"
_LONG: Final = b"0" * 200
"""Every text with a number that no double can hold has one of these when all its digits are 0 and
it has no plus; few others do. To look for them so is ten times faster than by an expression."""


def need_job(ask: Ask) -> None:
    """Refuse a job that brings too much of anything."""
    need_payload(ask.payload)
    _need_bytes("META_BYTES_MAX", "metadata", ask.meta, META_BYTES_MAX)
    _need_depth("metadata", ask.meta)
    need_numbers("metadata", ask.meta)
    _need_tags(ask.tags)
    key = None if ask.idempotency is None else ask.idempotency.key
    named = (("type", ask.type), ("queue", ask.queue), ("limit key", ask.key))
    for what, name in (*named, ("idempotency key", key), *(("tag", tag) for tag in ask.tags)):
        if name is not None:
            need_name(what, name)


def need_payload(payload: str) -> None:
    """Refuse arguments that are too large or too deep."""
    # So few characters cannot be either.
    if len(payload) > DEPTH_MAX:
        _need_bytes("PAYLOAD_BYTES_MAX", "arguments", payload, PAYLOAD_BYTES_MAX)
        _need_depth("arguments", payload)
    need_numbers("arguments", payload)


def need_batch(size: int) -> None:
    """Refuse a call with too many jobs."""
    if size > BATCH_MAX:
        why = f"{size} jobs in one call are too many: while they are written others wait."
        fix = f"Enqueue at most {BATCH_MAX} at a time; nothing is lost by that."
        raise _told(TooMany, f"{why} {fix}", "BATCH_MAX", BATCH_MAX, size)


def need_followers(size: int) -> None:
    """Refuse to make too many jobs in the commit that ends another one."""
    if size > FOLLOWERS_MAX:
        why = f"{size} jobs cannot be enqueued with the end of one: others wait for that commit."
        fix = f"Enqueue at most {FOLLOWERS_MAX}, one of which enqueues the rest."
        raise _told(TooMany, f"{why} {fix}", "FOLLOWERS_MAX", FOLLOWERS_MAX, size)


def need_numbers(what: str, text: str | bytes) -> None:
    """Refuse JSON with a number that others would read as infinite, like `1e999`, or not at all."""
    alike = _bytes_of(text).translate(_DIGITS_ALIKE, b"+")
    if _LARGE not in alike and _LONG not in alike:
        return
    try:
        msgspec.json.decode(text)
    except msgspec.ValidationError:
        why = f"The {what}: a number is larger than a double can be, and would be read as infinite."
        fix = "Send it as a string, or keep it under 1.8e308"
        raise NumberTooLarge(f"{why} {fix}", limit="NUMBER_MAX", what=what) from None
    except (msgspec.DecodeError, RecursionError):
        # What else is wrong with it is said by whoever reads it.
        return


def need_result(what: str, text: str) -> None:
    """Refuse a result or checkpoint that is too large for a row."""
    need_numbers(what, text)
    size = len(_bytes_of(text))
    if size > RESULT_BYTES_MAX:
        why = f"The {what} has {size} bytes of JSON; a database row should not be that large."
        fix = f"Keep it under {RESULT_BYTES_MAX}: store it elsewhere and return where it is."
        raise _told(ResultTooLarge, f"{why} {fix}", "RESULT_BYTES_MAX", RESULT_BYTES_MAX, size)


def _need_bytes(limit: str, what: str, text: str, most: int) -> None:
    # A character has four bytes at most: short texts are never encoded just to be measured.
    if len(text) * 4 <= most:
        return
    size = len(text.encode())
    if size > most:
        why = f"The {what} have {size} bytes of JSON, and every claim reads them."
        fix = f"Keep them under {most}: store the data elsewhere and pass where it is."
        raise _told(PayloadTooLarge, f"{why} {fix}", limit, most, size)


def _need_depth(what: str, text: str) -> None:
    if text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = _deepest(text)
    if depth > DEPTH_MAX:
        why = f"The {what} are nested {depth} deep, which not every reader of JSON can follow."
        fix = f"Flatten them to at most {DEPTH_MAX} levels."
        raise _told(PayloadTooDeep, f"{why} {fix}", "DEPTH_MAX", DEPTH_MAX, depth)


def _deepest(text: str) -> int:
    """How deep it goes: each bracket that opens is one more, each that closes one less.

    Nothing of it looks at single characters in Python, where a large text would hold up everybody
    else for a quarter of a second.
    """
    plain = _bytes_of(text).replace(b"\\\\", b"").replace(b'\\"', b"")
    steps = b"".join(plain.split(b'"')[::2]).translate(_ONE_MORE_OR_LESS, _ALL_BUT_BRACKETS)
    return max(accumulate(memoryview(steps).cast("b")), default=0)


def _bytes_of(text: str | bytes) -> bytes:
    # Half a character is nobody's number and no bracket: the store refuses it later.
    return text if isinstance(text, bytes) else text.encode(errors="replace")


def _need_tags(tags: tuple[str, ...]) -> None:
    if len(tags) > TAGS_MAX:
        why = f"{len(tags)} tags on one job are too many: each of them is a row in an index."
        fix = f"Use at most {TAGS_MAX}, and put what is never searched for into meta."
        raise _told(TooMany, f"{why} {fix}", "TAGS_MAX", TAGS_MAX, len(tags))


def need_name(what: str, name: str) -> None:
    """Refuse a name that an index cannot carry."""
    if not 1 <= len(name) <= NAME_CHARS_MAX:
        why = f"The {what} {name[:40]!r} has {len(name)} characters, and names stand in indexes."
        fix = f"Use 1 to {NAME_CHARS_MAX} characters; a hash stands for anything longer."
        raise _told(NameTooLong, f"{why} {fix}", "NAME_CHARS_MAX", NAME_CHARS_MAX, len(name))
    if "\0" in name:
        why = f"The {what} {name[:40]!r} has NUL in it, which not every database can keep."
        raise BadName(f"{why} Leave it out")


def _told(kind: type[LimitError], message: str, limit: str, most: int, value: int) -> LimitError:
    return kind(message, limit=limit, most=most, value=value)
