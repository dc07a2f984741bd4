"""What a handler may raise to say how its run ends, besides returning and failing.

They are raised, not returned, so that a function keeps the return type its callers see.
"""

from __future__ import annotations

import re
from datetime import timedelta

from detent.errors import BadOption
from detent.lifecycle.profile import SPAN_US_MAX

FAILED = "handler_error"
"""The code of a failure that brings none of its own."""
_CODE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
Span = float | timedelta
"""A length of time: seconds, or a timedelta."""


def is_code(text: str) -> bool:
    """Whether that can be the code of an error."""
    return _CODE.fullmatch(text) is not None


def us_of(span: Span) -> int:
    """The same in whole microseconds."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    try:
        return round(seconds * 1_000_000)
    except (TypeError, ValueError, OverflowError):
        why = f"A length of time is a number of seconds, or a timedelta, not {span!r:.60}"
        raise BadOption(why, value=str(span)[:60]) from None


class Outcome(Exception):
    """An end that the handler chose.

    What it says has a value also where a class derived from this one does not call `__init__`.
    """

    reason: str = ""

    def __init__(self, reason: object = "") -> None:
        super().__init__(reason)
        # Most often it is the error that led to it.
        self.reason = "" if reason is None else str(reason)


class Cancelled(Outcome):
    """It stopped because it was asked to: the job is cancelled."""


class Discard(Outcome):
    """Trying again is of no use: the job is discarded, whatever its policy says."""


class Retry(Outcome):
    """It failed, and wants to be tried again after that long, if its policy grants it."""

    after_us: int | None = None

    def __init__(self, reason: object = "", *, after: Span | None = None) -> None:
        super().__init__(reason)
        self.after_us = None if after is None else _wait_of(after)


class Snooze(Outcome):
    """Not now: run it again after that long. No failure, no charge.

    One that does not say how long is a failure: it would come back at once, for ever.
    """

    after_us: int | None = None

    def __init__(self, after: Span, reason: object = "") -> None:
        super().__init__(reason)
        self.after_us = _wait_of(after)


class UpstreamError(Exception):
    """Somebody else that the handler relies on has failed: a failure under a code of its own.

    `UpstreamError("GITHUB_DOWN", "no answer in 10 s")` is what readers of the job see.
    """

    code: str = FAILED

    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(message)
        if not is_code(code):
            why = f"A code is 1 to 100 letters, digits, points, dashes and bars, not {code!r}"
            raise BadOption(why, option="code", value=code[:100])
        self.code = code

    def __reduce__(self) -> tuple[type[UpstreamError], tuple[str, str]]:
        return type(self), (self.code, str(self))


def _wait_of(after: Span) -> int:
    """Refused here, where the traceback leads to who said it, and not when the run is reported."""
    us = us_of(after)
    if not 0 <= us <= SPAN_US_MAX:
        why = f"A wait is from 0 seconds to 100 years, not {after}"
        raise BadOption(why, option="after", value=str(after))
    return us
