"""Whose request a job belongs to, as W3C Trace Context has it. Pure.

It stands in the job's metadata as `traceparent` and `tracestate`, under the names that other
systems look for there. Nothing is decided by it.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from detent.errors import BadOption

_PARENT: Final = re.compile(r"(?P<version>[0-9a-f]{2})-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_MEMBER: Final = re.compile(
    r"[ \t]*(?:[a-z0-9][a-z0-9_\-*/]{0,240}(?:@[a-z][a-z0-9_\-*/]{0,13})?"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256})?[ \t]*"
)
_MEMBERS_MAX: Final = 32
_CHARS_MAX: Final = 512
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16


class Trace(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in a trace: which request (`trace_id`), and which step of it (`span_id`) asks."""

    traceparent: str
    tracestate: str = ""

    @property
    def trace_id(self) -> str:
        """The request, in 32 hexadecimal digits."""
        return self.traceparent.split("-")[1]

    @property
    def span_id(self) -> str:
        """The step of it that asks for the job, in 16."""
        return self.traceparent.split("-")[2]

    @property
    def is_sampled(self) -> bool:
        """Whether somebody records it."""
        return bool(int(self.traceparent.split("-")[3][:2], 16) & 1)

    def checked(self) -> Trace:
        """The same, if it is one; `BadOption` says what is wrong."""
        why = self.fault()
        if why is not None:
            raise BadOption(f"trace: {why}; see www.w3.org/TR/trace-context", option="trace")
        return self

    def fault(self) -> str | None:
        """What is wrong with it, if anything is."""
        found = _PARENT.fullmatch(self.traceparent)
        if found is None or len(self.traceparent) > _CHARS_MAX:
            return "a traceparent is 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, lower case"
        if found["version"] == "ff" or (found["version"] == "00" and found[2] is not None):
            return f"version {found['version']} of a traceparent does not look like this"
        if _NO_TRACE in self.traceparent or self.span_id == _NO_SPAN:
            return "nothing but zeros is no id"
        return _fault_of_state(self.tracestate)


def _fault_of_state(text: str) -> str | None:
    members = text.split(",") if text else []
    if len(text) > _CHARS_MAX or len(members) > _MEMBERS_MAX:
        return f"a tracestate has at most {_CHARS_MAX} characters and {_MEMBERS_MAX} members"
    if not all(_MEMBER.fullmatch(one) for one in members):
        return "a tracestate is a list of key=value with commas between them, keys in lower case"
    return None


class _Kept(msgspec.Struct):
    traceparent: str
    tracestate: str = ""


def read(meta: str) -> Trace | None:
    """The trace in a job's metadata; `None` if there is none, or what is there is none."""
    if '"traceparent"' not in meta:
        return None
    try:
        kept = msgspec.json.decode(meta, type=_Kept)
    except msgspec.DecodeError:
        return None
    trace = Trace(kept.traceparent, kept.tracestate)
    return None if trace.fault() else trace


def with_trace(meta: str, trace: Trace) -> str:
    """The metadata with the trace in it; one that it brings itself is overruled."""
    told = msgspec.json.decode(meta, type=dict[str, msgspec.Raw])
    told.pop("tracestate", None)
    for name, value in msgspec.structs.asdict(trace).items():
        if value:
            told[name] = msgspec.Raw(msgspec.json.encode(value))
    return msgspec.json.encode(told).decode()
