"""How a run ended, in the words of the lifecycle."""

from __future__ import annotations

import traceback
from types import TracebackType
from typing import Any

import msgspec

from detent.engine import limits
from detent.engine.commands import Beside, Change
from detent.errors import BadResult, DetentError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.values import REASON_MAX
from detent.lifecycle.retry import ErrorInfo
from detent.runtime.context import Heard
from detent.runtime.encoding import BadValue, digest_of, encode, mended
from detent.runtime.outcomes import (
    FAILED,
    Cancelled,
    Discard,
    Outcome,
    Retry,
    Snooze,
    UpstreamError,
    is_code,
)
from detent.stores.api import Failure, Line, Stored, key_of

_DISCARD = "DISCARD"
_NOTHING = "null"
_BACKTRACE_CHARS_MAX = 65_536
_MESSAGE_CHARS_MAX = 4_096
_OURS = ("detent.runtime.", "asyncio.")


class Raised(msgspec.Struct, frozen=True):
    """What a handler raised, as a value: not every exception can cross from thread to thread."""

    error: BaseException

    @property
    def is_plain(self) -> bool:
        """Whether it can be raised again anywhere."""
        return isinstance(self.error, Exception) and not isinstance(self.error, StopIteration)


class Written(msgspec.Struct, frozen=True):
    """What a handler returned, as the JSON that it was written as elsewhere."""

    text: str


class Told(msgspec.Struct, frozen=True):
    """What a handler raised, as far as it can be told in words: across processes nothing else goes.

    `names` are its class and those it is derived from, the nearest first. `after_us` is how long it
    wants to wait for its next attempt, if it said so.
    """

    code: str
    names: tuple[str, ...]
    message: str
    backtrace: str
    retryable: bool | None = None
    after_us: int | None = None


def told_of(error: BaseException, heard: Heard) -> Told:
    """The same error in words, masked."""
    # What we refuse ourselves (arguments, results, limits) is refused next time too.
    is_refused = isinstance(error, DetentError) and not error.retryable
    return Told(
        _code_of(error),
        tuple(type_of(kind) for kind in type(error).__mro__),
        message_of(error, heard, _MESSAGE_CHARS_MAX),
        _backtrace(error, heard),
        False if is_refused else None,
        error.after_us if isinstance(error, Retry) else None,
    )


def _code_of(error: BaseException) -> str:
    if isinstance(error, Discard):
        return _DISCARD
    code: object = error.code if isinstance(error, DetentError | UpstreamError) else FAILED
    # A class derived from those may have put anything there.
    return code if isinstance(code, str) and is_code(code) else FAILED


def ending(stored: Stored, returned: Any, by: By, heard: Heard, now: int) -> Change:
    """The report of a run that returned this, or raised it."""
    if returned is None:
        return _completed(stored, None, by, heard.last(now))
    if isinstance(returned, Told):
        return _failed(stored, returned, by, heard, now)
    if isinstance(returned, Raised):
        return _raised(stored, returned.error, by, heard, now)
    try:
        text = returned.text if isinstance(returned, Written) else encode(returned).decode()
        limits.need_result("result", text)
    except BadValue as bad:
        return _raised(stored, BadResult(f"The result is no JSON: {bad}"), by, heard, now)
    except DetentError as error:
        return _raised(stored, error, by, heard, now)
    return _completed(stored, None if text == _NOTHING else text, by, heard.last(now))


def _completed(stored: Stored, text: str | None, by: By, lines: tuple[Line, ...]) -> Change:
    """Whoever returns nothing has no result, which saves every such job a row."""
    digest = None if text is None else digest_of(text)
    done = j.Complete(lease=stored.job.lease, digest=digest)
    return Change(key_of(stored.job), done, by, beside=Beside(text, lines=lines), known=stored)


def _raised(stored: Stored, error: BaseException, by: By, heard: Heard, now: int) -> Change:
    key, lease = key_of(stored.job), stored.job.lease
    reason = heard.kept(error.reason, REASON_MAX) or None if isinstance(error, Outcome) else None
    match error:
        case Snooze() if error.after_us is not None:
            command: j.Command = j.Snooze(lease=lease, delay_us=error.after_us)
        case Cancelled():
            command = j.ConfirmCancel(lease=lease)
        case _:
            return _failed(stored, told_of(error, heard), by, heard, now)
    return Change(key, command, by, reason, Beside(lines=heard.last(now)), known=stored)


def _failed(stored: Stored, told: Told, by: By, heard: Heard, now: int) -> Change:
    failure = Failure(
        stored.job.attempt, now, told.code, told.message, told.names[0], backtrace=told.backtrace
    )
    return Change(
        key_of(stored.job),
        j.Fail(lease=stored.job.lease, code=told.code, digest=digest_of(told.message)),
        by,
        beside=Beside(failure=failure, lines=heard.last(now)),
        error=_info(stored, told),
        known=stored,
        delay_us=told.after_us,
    )


def _info(stored: Stored, told: Told) -> ErrorInfo:
    """What the policy looks at. A listed class covers what is derived from it."""
    if told.code == _DISCARD:
        return ErrorInfo(_DISCARD)
    listed = [name for name in told.names if name in stored.body.retry.non_retryable]
    return ErrorInfo(told.code, (listed or told.names)[0], retryable=told.retryable)


def type_of(kind: type[BaseException]) -> str:
    """The name of an exception, as policies and people write it."""
    if kind.__module__ in ("builtins", "__main__"):
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def message_of(error: BaseException, heard: Heard, most: int) -> str:
    """What it says of itself, masked."""
    try:
        return heard.kept(str(error), most)
    except BaseException as fault:
        # It is not ours, and may fail to say what it is, in a way that would end its whole worker.
        # Its type and traceback are still told.
        return f"(no message: {type(fault).__name__})"


def _users_own(found: TracebackType | None) -> TracebackType | None:
    """Without what led from us to the handler: nobody looks for their fault in there."""
    own = found
    while own is not None and str(own.tb_frame.f_globals.get("__name__")).startswith(_OURS):
        own = own.tb_next
    return own or found


def _backtrace(error: BaseException, heard: Heard) -> str:
    """The end of it, where the fault is; masked while it is whole."""
    frames = _users_own(error.__traceback__)
    try:
        told = traceback.format_exception(type(error), error, frames)
    except BaseException as fault:
        # Its parts are not what Python takes them for. Where it was raised is known all the same.
        told = [*traceback.format_tb(frames), f"(the rest cannot be told: {type(fault).__name__})"]
    return mended(heard.mask("".join(told))[-_BACKTRACE_CHARS_MAX:], _BACKTRACE_CHARS_MAX)
