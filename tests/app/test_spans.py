"""Spans of producers and consumers, as a program with OpenTelemetry sees them."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from detent import Context, Detent, Snooze, Unique, chain
from detent.engine import otel_spans
from detent.errors import JobExists
from tests.surfaces.rest import Rest
from tests.surfaces.server import Client, running

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What was exported. A provider can be set only once, and other tests must not be traced."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "_TRACER_PROVIDER", provider)
    return exporter


def named(seen: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    """The spans of that kind that have ended, oldest first."""
    return [one for one in seen.get_finished_spans() if one.kind is kind]


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def context(span: ReadableSpan) -> Any:
    found = span.get_span_context()
    assert found is not None
    return found


def test_a_job_is_enqueued_in_a_span_and_run_in_one_that_is_linked_to_it(
    app: Detent, seen: InMemorySpanExporter
) -> None:
    inner: list[Any] = []

    @app.job(queue="mail")
    def send() -> None:
        inner.append(otel.get_current_span().get_span_context())

    with otel.get_tracer("test").start_as_current_span("request") as request:
        handle = send.enqueue()
    app.drain()
    [producer], [consumer] = named(seen, SpanKind.PRODUCER), named(seen, SpanKind.CONSUMER)
    assert producer.name == "enqueue mail"
    assert producer.parent is not None
    assert producer.parent.span_id == request.get_span_context().span_id
    assert told(producer) == {
        "messaging.system": "detent",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": handle.id,
        "detent.job.type": "send",
        "detent.job.is_new": True,
    }
    assert consumer.name == "process mail"
    assert [link.context.span_id for link in consumer.links] == [context(producer).span_id]
    assert consumer.parent is not None
    assert consumer.parent.span_id == context(producer).span_id
    assert told(consumer)["messaging.message.id"] == handle.id
    assert told(consumer)["detent.job.attempt"] == 1
    assert [one.span_id for one in inner] == [context(consumer).span_id]


async def test_an_asynchronous_run_is_inside_its_span_and_what_follows_is_linked_to_it(
    app: Detent, seen: InMemorySpanExporter
) -> None:
    @app.job
    async def second() -> None:
        pass

    @app.job
    async def first(ctx: Context) -> None:
        await asyncio.sleep(0)
        ctx.enqueue(second.bind())

    await first.aenqueue()
    await app.adrain()
    one, two = named(seen, SpanKind.CONSUMER)
    _, follower = named(seen, SpanKind.PRODUCER)
    assert [link.context.span_id for link in two.links] == [context(follower).span_id]
    assert follower.parent is not None
    assert follower.parent.span_id == context(one).span_id
    assert told(follower)["detent.parent_job.id"] == told(one)["messaging.message.id"]


def test_every_job_of_a_workflow_is_enqueued_in_a_span_of_its_own(
    app: Detent, seen: InMemorySpanExporter
) -> None:
    @app.job(queue="one")
    def first() -> None:
        pass

    @app.job(queue="two")
    def second() -> None:
        pass

    with otel.get_tracer("test").start_as_current_span("request") as request:
        handle = app.start(chain(first.bind(), second.bind()))
    app.drain()
    producers, consumers = named(seen, SpanKind.PRODUCER), named(seen, SpanKind.CONSUMER)
    assert [one.name for one in producers] == ["enqueue one", "enqueue two"]
    for producer, consumer in zip(producers, consumers, strict=True):
        assert producer.parent is not None
        assert producer.parent.span_id == request.get_span_context().span_id
        assert told(producer)["detent.workflow.id"] == handle.id
        assert [link.context.span_id for link in consumer.links] == [context(producer).span_id]


def test_a_failure_is_told_without_its_secrets_and_a_snooze_is_none(
    app: Detent, seen: InMemorySpanExporter
) -> None:
    @app.job(secret=("token",), retry=0)
    def pay(token: str) -> None:
        raise ValueError("bad " + token)

    @app.job
    def wait() -> None:
        raise Snooze(3600)

    pay.enqueue("s3cret")
    wait.enqueue()
    app.drain()
    failed, put_off = named(seen, SpanKind.CONSUMER)
    assert (failed.status.status_code, failed.status.description) == (
        StatusCode.ERROR,
        "bad [secret]",
    )
    assert told(failed)["error.type"] == "ValueError"
    assert put_off.status.status_code is StatusCode.UNSET
    assert not failed.events


def test_a_job_that_is_refused_is_an_error_of_its_producer(
    app: Detent, seen: InMemorySpanExporter
) -> None:
    @app.job(unique=Unique(on_conflict="reject"))
    def once() -> None:
        pass

    once.enqueue()
    with pytest.raises(JobExists):
        once.enqueue()
    good, bad = named(seen, SpanKind.PRODUCER)
    assert good.status.status_code is StatusCode.UNSET
    assert (bad.status.status_code, told(bad)["error.type"]) == (StatusCode.ERROR, "unique")


def test_inside_a_transaction_of_the_callers_it_is_the_same(
    tmp_path: Path, seen: InMemorySpanExporter
) -> None:
    file = tmp_path / "detent.db"
    with Detent(f"sqlite:///{file}") as app:

        @app.job
        def nothing() -> None:
            pass

        app.enqueue_many([])  # so that there are tables
        with closing(sqlite3.connect(file)) as conn:
            handle = nothing.using(conn=conn).enqueue()
            conn.commit()
        app.drain()
    [producer], [consumer] = named(seen, SpanKind.PRODUCER), named(seen, SpanKind.CONSUMER)
    assert told(producer)["messaging.message.id"] == handle.id
    assert [link.context.span_id for link in consumer.links] == [context(producer).span_id]


def test_over_http_the_header_is_the_parent_and_the_job_keeps_the_span(
    tmp_path: Path, seen: InMemorySpanExporter
) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        with closing(Client(server.port, traceparent=PARENT)) as client:
            name = client.push("mail.send")["id"]
            meta = client.job(name)["meta"]
            steps = [{"type": "a", "args": []}]
            client.post("/workflows", {"type": "chain", "name": "c", "steps": steps}).ok(201)
        with closing(Rest(server.port)) as rest:
            rest.ask("POST", "/api/jobs", {"action": "mail"}, traceparent=PARENT)
    for producer in named(seen, SpanKind.PRODUCER):
        assert producer.parent is not None
        assert f"{producer.parent.trace_id:032x}-{producer.parent.span_id:016x}" in PARENT
    first, _, _ = named(seen, SpanKind.PRODUCER)
    assert f"-{context(first).span_id:016x}-" in meta["traceparent"]


PLAIN = """
import sys
from detent import Detent
app = Detent("memory:")
@app.job
def nothing() -> None: ...
nothing.enqueue()
app.drain()
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
import opentelemetry.trace
from detent.engine import otel_spans
assert otel_spans.tracing() is None, "nobody has said where spans go"
nothing.enqueue()
"""


def test_without_a_provider_nothing_is_imported_and_nothing_is_done() -> None:
    subprocess.run([sys.executable, "-c", PLAIN], check=True, timeout=60)  # noqa: S603
    assert otel_spans.tracing() is None or otel_spans.tracing() is otel
