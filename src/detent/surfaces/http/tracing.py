"""The trace that a request belongs to, as W3C Trace Context has it."""

from __future__ import annotations

from detent.engine.trace import Trace
from detent.surfaces.http.exchange import Call


def trace_of(call: Call) -> Trace | None:
    """What the headers say; what is none there is nobody's fault, and is ignored."""
    parent = call.header("traceparent")
    if parent is None:
        return None
    trace = Trace(parent, call.header("tracestate") or "")
    if trace.fault() is None:
        return trace
    return None if Trace(parent).fault() else Trace(parent)
