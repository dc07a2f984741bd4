"""A job belongs to the request that asked for it: said by the caller, or by OpenTelemetry."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from detent import Context, Detent, Job, Trace, group
from detent.engine.trace import read, with_trace
from detent.errors import BadOption, BadSchedule

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STATE = "congo=t61rcWkgMzE,rojo@x=00f067aa0ba902b7"


class Seen:
    """A job that remembers in which trace it ran."""

    def __init__(self, app: Detent) -> None:
        self.app = app
        self.traces: list[Trace | None] = []
        traces = self.traces

        @app.job
        def look(ctx: Context) -> None:
            traces.append(ctx.trace)

        self.look: Job[..., Any, ..., Any] = look

    def ran(self) -> list[Trace | None]:
        self.app.drain()
        return self.traces


@pytest.fixture
def seen(app: Detent) -> Seen:
    return Seen(app)


@pytest.mark.parametrize(
    ("told", "trace"),
    [
        (PARENT, Trace(PARENT)),
        (Trace(PARENT, STATE), Trace(PARENT, STATE)),
        ({"Traceparent": PARENT, "TraceState": STATE, "Host": "x"}, Trace(PARENT, STATE)),
        ({"Host": "x"}, None),
        (None, None),
    ],
)
def test_the_handler_gets_what_the_caller_said(seen: Seen, told: Any, trace: Trace | None) -> None:
    seen.look.using(trace=told, meta={"mine": 1.50}).enqueue()
    assert seen.ran() == [trace]


def test_without_a_word_there_is_none(seen: Seen) -> None:
    seen.look.enqueue()
    assert seen.ran() == [None]


def test_its_parts_can_be_read() -> None:
    trace = Trace(PARENT)
    assert trace.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert (trace.span_id, trace.is_sampled) == ("00f067aa0ba902b7", True)
    assert not Trace(PARENT[:-1] + "0").is_sampled


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        PARENT.upper(),
        PARENT[:-3],
        PARENT + "-more",
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        Trace(PARENT, "no-value"),
        Trace(PARENT, "Upper=1"),
        Trace(PARENT, "a=" + "b" * 600),
        Trace(PARENT, ",".join(f"k{n}=1" for n in range(33))),
        7,
    ],
)
def test_what_is_none_is_refused(seen: Seen, wrong: Any) -> None:
    with pytest.raises(BadOption, match="trace"):
        seen.look.using(trace=wrong).enqueue()
    assert seen.ran() == []


def test_a_newer_version_may_bring_more() -> None:
    assert Trace("01" + PARENT[2:] + "-what-comes-next").fault() is None


def _active(state: str = "a=1,b=2") -> Any:
    context = SpanContext(
        trace_id=int("4bf92f3577b34da6a3ce929d0e0e4736", 16),
        span_id=int("00f067aa0ba902b7", 16),
        is_remote=False,
        trace_flags=TraceFlags(1),
        trace_state=TraceState.from_header([state]),
    )
    return otel.use_span(NonRecordingSpan(context))


def test_the_active_span_is_taken_on_every_way(seen: Seen) -> None:
    with _active():
        seen.look.enqueue()
        asyncio.run(seen.look.aenqueue())
        seen.app.enqueue_many([seen.look.bind()])
        first = seen.app.start(group(seen.look.bind()), id="w")
        seen.look.using(trace=None).enqueue()
        own = PARENT.replace("4bf9", "aaaa")
        seen.look.using(meta={"traceparent": own}).enqueue()
    assert first.is_new
    assert not seen.app.start(group(seen.look.bind()), id="w").is_new
    expected = Trace(PARENT, "a=1,b=2")
    assert sorted(map(str, seen.ran())) == sorted(map(str, [*[expected] * 4, None, Trace(own)]))


def test_a_schedule_has_none(seen: Seen) -> None:
    with _active():
        seen.app.schedules.add("@hourly", seen.look.bind(), name="ours")
        seen.app.schedules.put()
        seen.app.schedules.fire("ours")
    assert seen.ran() == [None]
    seen.app.schedules.add("@hourly", seen.look.using(trace=PARENT).bind(), name="traced")
    with pytest.raises(BadSchedule, match="trace"):
        seen.app.schedules.put()


def test_what_others_wrote_is_read_if_it_is_one() -> None:
    assert read(f'{{"traceparent": "{PARENT}", "tracestate": "a=1"}}') == Trace(PARENT, "a=1")
    for meta in ("{}", '{"traceparent": 7}', '{"traceparent": "x"}', '["traceparent"]'):
        assert read(meta) is None
    meta = with_trace('{"n":1.50,"tracestate":"old=1"}', Trace(PARENT))
    assert meta == f'{{"n":1.50,"traceparent":"{PARENT}"}}'


def test_nobody_who_does_not_trace_pays_for_it() -> None:
    code = (
        "import sys, detent\n"
        "app = detent.Detent('memory:')\n"
        "@app.job\n"
        "def look() -> None: ...\n"
        "look.enqueue()\n"
        "assert 'opentelemetry' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)  # noqa: S603
