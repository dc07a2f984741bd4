"""Spans of OpenTelemetry around what is enqueued and what is run, for programs that trace.

Nothing is imported for it. A program that has not imported OpenTelemetry, or has not said where its
spans go, pays for one look. The words are those of the semantic conventions for messaging.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any, Final

from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.trace import Trace, read

_API: Final = "opentelemetry.trace"
_NOBODY: Final = "ProxyTracerProvider"
"""The provider of a program that has set none."""


def tracing() -> Any:
    """OpenTelemetry, if the program uses it and has said where spans go; else `None`."""
    api: Any = sys.modules.get(_API)
    if api is None or not hasattr(api, "get_tracer_provider"):
        # Somebody imports it right now, in another thread.
        return None
    return None if type(api.get_tracer_provider()).__name__ == _NOBODY else api


def current() -> Trace | None:
    """Where OpenTelemetry says that this thread or task is, if anybody has imported it."""
    api: Any = sys.modules.get(_API)
    return None if api is None else _trace_of(api.get_current_span())


def _trace_of(span: Any) -> Trace | None:
    told = span.get_span_context()
    if not told.is_valid:
        return None
    parent = f"00-{told.trace_id:032x}-{told.span_id:016x}-{int(told.trace_flags):02x}"
    state = ",".join(f"{name}={value}" for name, value in told.trace_state.items())
    trace = Trace(parent, state)
    # What it says about itself is its own affair: it must not keep a job from being enqueued.
    return Trace(parent) if trace.fault() else trace


def started(api: Any, name: str, kind: Any, told: Mapping[str, Any], **more: Any) -> Any:
    """A span with these attributes; who ends it is the caller's affair."""
    tracer = api.get_tracer_provider().get_tracer("detent", _version())
    attributes = {"messaging.system": "detent", **told}
    return tracer.start_span(name, kind=kind, attributes=attributes, **more)


@cache
def _version() -> str:
    # Megabytes in every worker, of which few trace.
    from importlib.metadata import version  # noqa: PLC0415

    return version("detent")


def _place(api: Any, trace: Trace) -> Any:
    state = api.TraceState.from_header([trace.tracestate] if trace.tracestate else [])
    flags = api.TraceFlags(int(trace.is_sampled))
    ids = int(trace.trace_id, 16), int(trace.span_id, 16)
    return api.SpanContext(*ids, is_remote=True, trace_flags=flags, trace_state=state)


def parent_of(api: Any, trace: Trace | None) -> Any:
    """What a span begins under; without a trace, whatever is active here."""
    if trace is None:
        return None
    return api.set_span_in_context(api.NonRecordingSpan(_place(api, trace)))


def link_of(api: Any, trace: Trace | None) -> list[Any]:
    """The link to whoever has enqueued it, if they said who they are."""
    return [] if trace is None else [api.Link(_place(api, trace))]


class Producing:
    """The spans of some jobs on their way into the store; each job names its own."""

    def __init__(self, api: Any, asks: Sequence[Ask]) -> None:
        self._api = api
        self.asks = asks
        self._spans: list[Any] = []
        if api is not None:
            self._spans = [_produced(api, ask) for ask in asks]
            self.asks = [_within(*one) for one in zip(asks, self._spans, strict=True)]

    def hear(self, answers: Sequence[Any]) -> None:
        """What became of each: a job, or why there is none."""
        for span, answer in zip(self._spans, answers, strict=False):
            if (job := getattr(answer, "job", None)) is not None:
                span.set_attribute("messaging.message.id", job.id)
                span.set_attribute("detent.job.is_new", answer.is_new)
            else:
                self._fail(span, str(getattr(answer, "code", None) or answer.what))

    def hear_all(self, answer: Any, **told: str) -> None:
        """What became of all of them, who come or stay away together; `told` is of each."""
        code = getattr(answer, "code", None)
        for span in self._spans:
            span.set_attributes({f"detent.{name}.id": value for name, value in told.items()})
            if code is not None:
                self._fail(span, code)

    def dealt(self, sizes: Iterable[int]) -> Iterator[tuple[Ask, ...]]:
        """The jobs in portions of these sizes, in order."""
        asks = iter(self.asks)
        for size in sizes:
            yield tuple(islice(asks, size))

    def fail(self, error: BaseException) -> None:
        """None of them came to be."""
        for span in self._spans:
            self._fail(span, getattr(error, "code", type(error).__qualname__))

    def end(self) -> None:
        """End all spans."""
        for span in self._spans:
            span.end()

    def _fail(self, span: Any, code: str) -> None:
        span.set_attribute("error.type", code)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR))


@contextmanager
def producing(asks: Sequence[Ask]) -> Iterator[Producing]:
    """Spans around the enqueueing of these, if the program traces."""
    spans = Producing(tracing(), asks)
    try:
        yield spans
    except BaseException as error:
        spans.fail(error)
        raise
    finally:
        spans.end()


def _produced(api: Any, ask: Ask) -> Any:
    told = {
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": ask.queue,
        "detent.job.type": ask.type,
    }
    parent = parent_of(api, ask.trace or read(ask.meta))
    return started(api, f"enqueue {ask.queue}", api.SpanKind.PRODUCER, told, context=parent)


def _within(ask: Ask, span: Any) -> Ask:
    """The job names the span that it was enqueued in; one that nobody records has no name."""
    trace = _trace_of(span)
    return ask if trace is None else replace(ask, trace=trace)
