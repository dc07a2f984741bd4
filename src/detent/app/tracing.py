"""The trace that a caller is in: said by them, or by OpenTelemetry if the program uses it."""

from __future__ import annotations

from collections.abc import Mapping

from detent.engine.trace import Trace
from detent.errors import BadOption

TraceLike = Trace | str | Mapping[str, str] | None
"""A trace, a `traceparent`, or headers that have one; `None` is none, whatever is active."""


def trace_of(told: object) -> Trace | None:
    """What the option says; `BadOption` if that is no trace."""
    if told is None:
        return None
    if isinstance(told, Trace):
        return told.checked()
    if isinstance(told, str):
        return Trace(told).checked()
    if not isinstance(told, Mapping):
        why = "a traceparent, a Trace, or headers with a traceparent"
        raise BadOption(f"trace is {why}, not {type(told).__name__}", option="trace")
    headers = {str(name).lower(): str(value) for name, value in told.items()}
    if "traceparent" not in headers:
        return None
    return Trace(headers["traceparent"], headers.get("tracestate", "")).checked()
