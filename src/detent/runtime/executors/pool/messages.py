"""What a worker and its pool process say to each other: JSON, checked on both sides.

Whatever a handler wants from the store it asks its worker for. An `answer` to such a call comes
last, after anything that was found; it has a `fault` when the call was refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from detent import errors
from detent.engine.asks import Ask
from detent.engine.progress import Result
from detent.errors import ChannelBroken, DetentError
from detent.runtime.ending import Told
from detent.runtime.process.frames import Message
from detent.stores.api import Limit, Stored

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""A result or a checkpoint at its limit, quoted as text inside of JSON, and then some."""


class Fault(msgspec.Struct, frozen=True):
    """A coded error in words."""

    code: str
    message: str
    fields: dict[str, Any] = {}


class Begin(msgspec.Struct, frozen=True, tag_field="kind", tag="begin"):
    """Run this job. Its payload is open; `secrets` are the values that nobody else may see."""

    stored: Stored
    secrets: list[Any] = []
    memory_bytes: int | None = None

    def __repr__(self) -> str:
        return f"<Begin {self.stored.job.id}>"


class Halt(msgspec.Struct, frozen=True, tag_field="kind", tag="halt"):
    """The run should stop, wherever that is safe."""


class Found(msgspec.Struct, frozen=True, tag_field="kind", tag="found"):
    """One of the results that a call asked for."""

    call: int
    result: Result


class Answer(msgspec.Struct, frozen=True, tag_field="kind", tag="answer"):
    """The call is done, or refused."""

    call: int
    fault: Fault | None = None


class Leave(msgspec.Struct, frozen=True, tag_field="kind", tag="leave"):
    """There is no more to do: end as a program ends."""


class Ready(msgspec.Struct, frozen=True, tag_field="kind", tag="ready"):
    """The program is imported: jobs can be run."""


class Broken(msgspec.Struct, frozen=True, tag_field="kind", tag="broken"):
    """The program cannot be imported: this process ends now."""

    fault: Fault


class Spoken(msgspec.Struct, frozen=True, tag_field="kind", tag="spoken"):
    """A line for the log."""

    text: str
    level: str


class Noted(msgspec.Struct, frozen=True, tag_field="kind", tag="noted"):
    """How far it is."""

    percent: int
    text: str


class Save(msgspec.Struct, frozen=True, tag_field="kind", tag="save"):
    """Keep this checkpoint."""

    call: int
    text: str


class Find(msgspec.Struct, frozen=True, tag_field="kind", tag="find"):
    """How the jobs of an earlier step ended."""

    call: int
    step: str | None = None


class Follower(msgspec.Struct, frozen=True):
    """A job that is to follow; what is relative counts from the moment of its enqueue."""

    ask: Ask
    limits: list[tuple[str, str, Limit]] = []
    is_run_relative: bool = False
    is_expiry_relative: bool = False


class Follow(msgspec.Struct, frozen=True, tag_field="kind", tag="follow"):
    """Enqueue these with the end of the job; their moments were counted from `now`."""

    call: int
    now: int
    followers: list[Follower]


class End(msgspec.Struct, frozen=True, tag_field="kind", tag="end"):
    """The run has ended: one of these says how, or it was stopped.

    What was interrupted is told as an error too, for a worker that did not interrupt it. `dropped`
    lines were never sent; `rss_bytes` is what the process holds now.
    """

    result: str | None = None
    told: Told | None = None
    snooze_us: int | None = None
    is_cancelled: bool = False
    is_interrupted: bool = False
    reason: str = ""
    dropped: int = 0
    rss_bytes: int = 0


Order = Begin | Halt | Found | Answer | Leave
"""What a worker says."""
Word = Ready | Broken | Spoken | Noted | Save | Find | Follow | End
"""What a pool process says."""


def plain(message: Order | Word) -> Message:
    """The message as dicts and lists, ready for JSON."""
    made: Message = msgspec.to_builtins(message, str_keys=True)
    return made


def order_of(message: Message) -> Order:
    """A message of a worker, checked."""
    return msgspec.convert(message, Order)  # type: ignore[no-any-return]


def word_of(message: Message) -> Word:
    """What a pool process has said; it runs other people's code, so anything may come."""
    try:
        return msgspec.convert(message, Word)  # type: ignore[no-any-return]
    except msgspec.ValidationError as error:
        why = f"A pool process said something that is no message: {error}"
        raise ChannelBroken(why, kind=str(message.get("kind"))) from None


def fault_of(error: DetentError) -> Fault:
    """The error in words."""
    fields = msgspec.to_builtins(error.fields, str_keys=True, enc_hook=str)
    return Fault(error.code, error.message, fields)


def error_of(fault: Fault) -> DetentError:
    """The error again, of the class that has its code."""
    kinds = {kind.code: kind for kind in _kinds(errors.DetentError)}
    return kinds.get(fault.code, DetentError)(fault.message, **fault.fields)


def _kinds(kind: type[DetentError]) -> Iterator[type[DetentError]]:
    yield kind
    for derived in kind.__subclasses__():
        yield from _kinds(derived)
