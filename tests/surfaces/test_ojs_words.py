"""What is read and written without a server: instants, lengths, policies, problems, events."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest

from detent.errors import BadName, StoreBusy, StoreClosed, StoreCorrupt, UnknownWorkflow
from detent.lifecycle import job as j
from detent.lifecycle.event import By, Event
from detent.lifecycle.job.record import Job
from detent.lifecycle.machine import Actor
from detent.lifecycle.retry import RetryPolicy, Strategy
from detent.stores.api import Body, Fed, Limit, Stored
from detent.surfaces.http.logs import REQUEST, JsonLines
from detent.surfaces.http.problems import Problem, problem_of
from detent.surfaces.ojs.envelope import kept_of, shown
from detent.surfaces.ojs.event_words import events_of, position_of
from detent.surfaces.ojs.policies import Facts, limits_of, retry_of, retry_shown, unique_of
from detent.surfaces.ojs.wire import duration, instant, span, span_ms, told
from detent.surfaces.ojs.workers import Worker

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("PT1S", 1), ("PT0.5S", 0.5), ("PT1M30S", 90), ("P1DT2H", 93_600), ("P2W", 1_209_600)],
)
def test_lengths(text: str, seconds: float) -> None:
    assert span("f", text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "P", "PT", "1s", "P1Y", "PT1", "-PT1S", 5, None, "P1DT"])
def test_lengths_that_are_none(text: object) -> None:
    with pytest.raises(Problem):
        span("f", text)


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "1"])
def test_milliseconds_that_are_none(value: object) -> None:
    with pytest.raises(Problem):
        span_ms("f", value)


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "PT0S"), (1_500_000, "PT1.5S"), (90 * SECOND, "PT90S"), (7_200 * SECOND, "PT2H")],
)
def test_lengths_as_they_are_written(us: int, text: str) -> None:
    assert duration(us) == text
    assert span("f", text) == us


@pytest.mark.parametrize(
    "text",
    ["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.1234567z", "2026-01-02 05:04:05+02:00"],
)
def test_instants(text: str) -> None:
    at, echo = instant("f", text, 0)
    assert told(at)[:19] == "2026-01-02T03:04:05"
    assert echo == text


@pytest.mark.parametrize("value", ["2026-02-30T00:00:00Z", "2026-01-01", 7, "+1s", "9" * 40])
def test_instants_that_are_none(value: object) -> None:
    with pytest.raises(Problem):
        instant("f", value, 0)


def test_retry_policies() -> None:
    assert retry_of(None) == RetryPolicy()
    policy = retry_of({"initial_interval_ms": 250, "backoff_type": "none", "extra": 1})
    assert (policy.initial_us, policy.strategy) == (250_000, Strategy.CONSTANT)
    assert retry_of({"initial_interval": "PT10M"}).max_us == 600 * SECOND
    assert msgspec.json.decode(retry_shown(policy))["backoff_strategy"] == "constant"
    for bad in ({"max_attempts": 10**9}, {"initial_interval_ms": 0}, {"initial_interval": "P400D"}):
        with pytest.raises(Problem) as raised:
            retry_of(bad)
        assert raised.value.status == 422


def test_what_makes_jobs_the_same() -> None:
    def print_of(policy: dict[str, Any], *args: Any, queue: str = "q", **meta: Any) -> str:
        found = unique_of(policy, Facts("t", queue, list(args), meta))
        assert found is not None
        return found.fingerprint

    assert print_of({}, 1) == print_of({}, 2)
    assert print_of({"keys": ["args"]}, {"a": 1, "b": 2}) == print_of(
        {"key": "args"}, {"b": 2, "a": 1}
    )
    assert print_of({"keys": ["args"]}, "\u00e9") == print_of({"keys": ["args"]}, "e\u0301")
    assert print_of({"keys": ["queue"]}, queue="a") != print_of({"keys": ["queue"]}, queue="b")
    assert print_of({"key": ["id"]}, {"id": 1, "x": 1}) == print_of(
        {"args_keys": ["id"]}, {"id": 1}
    )
    by_meta = {"keys": ["meta"], "meta_keys": ["m"]}
    assert print_of(by_meta, m=1, n=1) == print_of(by_meta, m=1, n=2)


@pytest.mark.parametrize(
    ("value", "limit"),
    [
        ({"max_per_second": 4}, Limit(spacing_us=250_000)),
        ({"key": "k", "concurrency": 2}, Limit(2)),
        ({"rate": 1, "period": "minute"}, Limit(rate=1, period_us=60 * SECOND)),
        ({"rate": {"limit": 3}}, Limit(rate=3)),
        ({"throttle": {"limit": 2, "period": "PT1S"}}, Limit(spacing_us=500_000)),
    ],
)
def test_limits(value: dict[str, Any], limit: Limit) -> None:
    found = limits_of(value)
    assert found is not None
    assert found.limit == limit


@pytest.mark.parametrize(
    "value",
    [
        [],
        {},
        {"key": "!"},
        {"concurrency": 0},
        {"rate": "x"},
        {"rate": 10**9},
        {"rate": {"limit": 1, "period": "x"}},
    ],
)
def test_limits_that_are_none(value: object) -> None:
    with pytest.raises(Problem):
        limits_of(value)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (StoreBusy("x"), 503, "unavailable"),
        (StoreClosed("x"), 503, "unavailable"),
        (StoreCorrupt("x"), 500, "backend_error"),
        (BadName("x"), 400, "invalid_request"),
        (UnknownWorkflow("x", id="y", more=[1]), 404, "not_found"),
        (Problem(418, "tea", "x"), 418, "tea"),
    ],
)
def test_what_errors_are_outside(error: Exception, status: int, code: str) -> None:
    problem = problem_of(error, "req_1")
    assert (problem.status, problem.code) == (status, code)
    assert "more" not in problem.details


def test_metadata_that_only_looks_like_a_schedules() -> None:
    for text in ('{"schedule":"mine"}', '{"x":"schedule"}'):
        assert bytes(kept_of(text).meta) == text.encode()


def test_jobs_of_other_ways_in_have_an_array_too() -> None:
    job = shown(_stored("python", '{"args":[1],"kwargs":{}}'), "x")
    assert bytes(job["args"]) == b'[{"args":[1],"kwargs":{}}]'


def test_a_worker_is_quiet_by_its_own_word_or_by_ours() -> None:
    worker = Worker(id="w", started_at=0, last_at=0)
    assert not worker.is_quiet
    assert msgspec.structs.replace(worker, state="draining").is_quiet
    assert msgspec.structs.replace(worker, directive="terminate").is_quiet


@pytest.mark.parametrize(
    ("name", "source", "target", "expected"),
    [
        ("enqueue", None, "scheduled", ["job.scheduled"]),
        ("due", "scheduled", "available", ["job.enqueued"]),
        ("due", "retryable", "available", []),
        ("time_out", "active", "retryable", ["job.timeout", "job.failed", "job.retrying"]),
        ("lose", "active", "discarded", ["job.failed", "job.discarded"]),
        ("lose", "active", "cancelled", ["job.cancelled"]),
        ("expire", "available", "discarded", ["job.expired", "job.discarded"]),
        ("drop", "available", "discarded", ["job.discarded"]),
        ("cancel", "available", "cancelled", ["job.cancelled"]),
        ("reprioritised", "available", None, []),
    ],
)
def test_events_in_their_words(
    name: str, source: str | None, target: str | None, expected: list[str]
) -> None:
    told_of = list(events_of(_fed(name, source, target), _stored(), "shown", []))
    assert [one.type for one in told_of] == expected
    assert all(one.body["subject"] == "shown" for one in told_of)
    numbers = range(1, len(told_of) + 1)
    assert [position_of(one.id) for one in told_of] == [(77, number) for number in numbers]
    assert [one.position for one in told_of] == [(77, number) for number in numbers]


def test_events_of_workflows_and_of_what_is_gone() -> None:
    made = list(events_of(_fed("make", None, "pending", "workflow"), None, "x", []))
    ended = list(events_of(_fed("abort", "pending", "aborted", "workflow"), None, "x", []))
    assert [one.type for one in (*made, *ended)] == ["workflow.started", "workflow.cancelled"]
    assert list(events_of(_fed("start", "pending", "in_progress", "workflow"), None, "x", [])) == []
    assert list(events_of(_fed("claim", "available", "active"), None, "x", [])) == []


def test_a_log_line_is_an_object() -> None:
    record = logging.LogRecord("n", logging.WARNING, "f", 1, "hello %s", ("you",), None)
    line = msgspec.json.decode(JsonLines().format(record))
    assert (line["message"], line["severity"], line["severity_number"]) == ("hello you", "WARN", 13)
    assert "request_id" not in line
    token = REQUEST.set("req_1")
    try:
        line = msgspec.json.decode(JsonLines("worker").format(record))
    finally:
        REQUEST.reset(token)
    assert (line["component"], line["request_id"]) == ("worker", "req_1")


def _fed(name: str, source: str | None, target: str | None, kind: str = "job") -> Fed:
    event = Event(
        "", "id", 1, SECOND, name, source, target, Actor.SYSTEM, "s", "c", kind=kind, code="x"
    )
    return Fed(77, event)


def _stored(profile: str = "ojs", payload: str = "[]") -> Stored:
    command = j.Enqueue(id="x", profile=profile)
    ctx = j.Context(By(Actor.USER, "u"), "c", place=1)
    answer = j.decide(None, command, SECOND, ctx)
    assert isinstance(answer, j.Accepted)
    job: Job = answer.job
    return Stored(job, Body("t", payload))
