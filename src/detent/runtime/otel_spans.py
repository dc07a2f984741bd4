"""A span around every run, for programs that trace; see `engine/otel_spans.py`.

It belongs to the trace of whoever has enqueued the job, and is linked to their span. What a handler
raises is told with its secrets masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from detent.engine.otel_spans import link_of, parent_of, started, tracing
from detent.runtime.context import Context
from detent.runtime.ending import message_of, type_of
from detent.runtime.middleware import Arounds
from detent.runtime.outcomes import Cancelled, Snooze

_TEXT_MAX = 500


def traced(arounds: Arounds[Context]) -> Arounds[Context]:
    """The same with a span around it all, if the program traces by now."""
    return arounds if tracing() is None else arounds.within(_consuming)


def _consuming(ctx: Context) -> Iterator[None]:
    api = tracing()
    if api is None:
        yield
        return
    span = _begun(api, ctx)
    with api.use_span(
        span, end_on_exit=True, record_exception=False, set_status_on_exception=False
    ):
        try:
            yield
        except BaseException as error:
            _tell(api, span, error, ctx)
            raise


def _begun(api: Any, ctx: Context) -> Any:
    told = {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": ctx.queue,
        "messaging.message.id": ctx.job_id,
        "detent.job.type": ctx.job_type,
        "detent.job.attempt": ctx.attempt,
    }
    trace, kind = ctx.trace, api.SpanKind.CONSUMER
    more = {"context": parent_of(api, trace), "links": link_of(api, trace)}
    return started(api, f"process {ctx.queue}", kind, told, **more)


def _tell(api: Any, span: Any, error: BaseException, ctx: Context) -> None:
    """How it ended; to be put off or called off is no error."""
    span.set_attribute("detent.job.outcome", type(error).__name__)
    if not isinstance(error, Snooze | Cancelled):
        span.set_attribute("error.type", type_of(type(error)))
        said = message_of(error, ctx.heard, _TEXT_MAX)
        span.set_status(api.Status(api.StatusCode.ERROR, said))
