"""Telemetry is a function of a job's history: what is told of a life, whole or cut off anywhere."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

import pytest

from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor
from detent.lifecycle.views import CATEGORIES, TELEMETRY, Category, category
from detent.lifecycle.views.telemetry import About, telemetry

ABOUT = About("BUILD", "user_1", {1: ("BAD_ASSET", "a.png")})
MS = 1_000
Move: TypeAlias = tuple[str, str | None, str | None, dict[str, Any]]


def history(*moves: Move) -> list[Event]:
    """Events a second apart: name, source, target and what else they carry."""
    return [
        Event(
            "",
            "j",
            version,
            version * 1_000 * MS,
            name,
            source,
            target,
            Actor.SYSTEM,
            "x",
            "c",
            **more,
        )
        for version, (name, source, target, more) in enumerate(moves, start=1)
    ]


ENQUEUE: Move = ("enqueue", None, "available", {})
DISPATCH: Move = ("dispatch", "available", "pending", {"holder": "gpu#1"})
ACKNOWLEDGE: Move = ("acknowledge", "pending", "active", {})
COMPLETE: Move = ("complete", "active", "completed", {})


def test_a_success_is_told_with_the_differences_of_its_instants() -> None:
    told = telemetry(history(ENQUEUE, DISPATCH, ACKNOWLEDGE, COMPLETE), ABOUT)
    assert [(one.name, one.data) for one in told] == [
        ("JOB_QUEUED", {"jobId": "j", "jobType": "BUILD", "userId": "user_1", "queuedAt": 1_000}),
        ("JOB_DISPATCHED", {"jobId": "j", "engineId": "gpu", "dispatchedAt": 2_000}),
        ("JOB_RUNNING", {"jobId": "j", "engineId": "gpu", "startedAt": 3_000}),
        (
            "JOB_COMPLETED",
            {"jobId": "j", "engineId": "gpu", "completedAt": 4_000, "duration": 1_000},
        ),
    ]


def test_a_retry_is_told_and_the_second_end_counts() -> None:
    failed: Move = ("fail", "active", "retryable", {"code": "BAD_ASSET", "run_at": 9_000 * MS})
    due: Move = ("due", "retryable", "available", {})
    told = telemetry(
        history(ENQUEUE, DISPATCH, ACKNOWLEDGE, failed, due, DISPATCH, ACKNOWLEDGE, COMPLETE), ABOUT
    )
    assert [one.name for one in told].count("JOB_QUEUED") == 1
    retrying = next(one for one in told if one.name == "JOB_RETRYING")
    error = "BAD_ASSET: a.png"
    assert retrying.data == {"jobId": "j", "engineId": "gpu", "retryAt": 9_000, "error": error}
    assert told[-1].data["duration"] == 1_000


@pytest.mark.parametrize(
    ("moves", "error", "duration", "whose"),
    [
        (
            [("expire", "available", "discarded", {"code": "QUEUE_TIMEOUT"})],
            "QUEUE_TIMEOUT: no engine took it in time",
            1_000,
            "queue",
        ),
        (
            [
                DISPATCH,
                ("lose", "pending", "discarded", {"code": "ENGINE_DISCONNECTED", "reason": "gone"}),
            ],
            "ENGINE_DISCONNECTED: gone",
            2_000,
            "queue",
        ),
        (
            [
                DISPATCH,
                ACKNOWLEDGE,
                ("lose", "active", "discarded", {"code": "ENGINE_DISCONNECTED"}),
            ],
            "ENGINE_DISCONNECTED",
            1_000,
            "system",
        ),
        (
            [DISPATCH, ("time_out", "pending", "discarded", {"code": "ENGINE_NOT_RESPONDING"})],
            "ENGINE_NOT_RESPONDING",
            2_000,
            "system",
        ),
        (
            [DISPATCH, ACKNOWLEDGE, ("fail", "active", "discarded", {"code": "BAD_ASSET"})],
            "BAD_ASSET: a.png",
            1_000,
            "engine",
        ),
        (
            [("cancel", "available", "cancelled", {})],
            "CANCELLED: it was called off",
            1_000,
            "cancelled",
        ),
    ],
)
def test_a_failure_says_why_for_how_long_and_whose_it_was(
    moves: list[Move], error: str, duration: int, whose: str
) -> None:
    last = telemetry(history(ENQUEUE, *moves), ABOUT)[-1]
    assert last.name == "JOB_FAILED"
    assert (last.data["error"], last.data["duration"]) == (error, duration)
    assert last.data["category"] == whose
    assert last.data["engineId"] == ("gpu" if moves[-1][1] == "active" else None)


def test_what_is_told_of_a_part_is_a_part_of_what_is_told_of_the_whole() -> None:
    """So any page of the feed can be told by itself."""
    snooze: Move = ("snooze", "active", "retryable", {"run_at": 5})
    due: Move = ("due", "retryable", "available", {})
    whole = history(
        ENQUEUE,
        ("held", None, None, {}),
        DISPATCH,
        ACKNOWLEDGE,
        snooze,
        due,
        DISPATCH,
        ACKNOWLEDGE,
        COMPLETE,
        ("annotated", None, None, {}),
    )
    told = telemetry(whole, ABOUT)
    cut = random.Random(1).randrange(1, len(whole))
    part = telemetry(whole[:cut], ABOUT)
    assert told[: len(part)] == part
    assert [one.version for one in told] == sorted({one.version for one in told})


def test_every_category_has_a_code_and_other_codes_are_the_engines() -> None:
    assert set(CATEGORIES.values()) == set(Category)
    assert category("MY_OWN", started=True) is Category.ENGINE
    assert category("ENGINE_DISCONNECTED", started=False) is Category.QUEUE
    assert category("ENGINE_DISCONNECTED", started=True) is Category.SYSTEM


def test_what_is_told_has_the_names_of_the_protocol() -> None:
    assert {"JOB_QUEUED", "JOB_DISPATCHED", "JOB_RUNNING", "JOB_COMPLETED", "JOB_FAILED"} <= set(
        TELEMETRY.values()
    )
