"""Where the jobs of a type run: what can be declared, and what follows when nothing is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from detent import Detent
from detent.errors import BadOption
from detent.lifecycle import job as j
from detent.runtime.executors.means import Kind, Means, chosen, is_alone, kind_of
from detent.stores.api import Body, Stored


def plain() -> None: ...
async def coroutine() -> None: ...


@pytest.fixture
def memory() -> Detent:
    """An app that is never opened."""
    return Detent("memory:")


def stored(**fields: Any) -> Stored:
    job = j.Job(
        tenant="",
        id="1",
        version=1,
        state=j.JobState.ACTIVE,
        profile="python",
        queue="default",
        priority=0,
        delivery="pull",  # type: ignore[arg-type]
        allowed=3,
        losses_allowed=3,
        created_at=0,
        state_at=0,
        last_at=0,
    )
    return Stored(replace(job, **fields), Body("it", "[]"))


def test_what_is_declared(memory: Detent) -> None:
    options: dict[str, Any] = {"executor": "process", "memory": 50_000_000, "grace": 2}
    job = memory.job(**options)(plain)
    assert job.signature.means == Means(Kind.PROCESS, 50_000_000, 2_000_000)
    other = memory.job(name="other", grace=timedelta(seconds=1))(coroutine)
    assert other.signature.means == Means(grace_us=1_000_000)
    assert not {"executor", "memory", "grace"} & job.options.keys()


@pytest.mark.parametrize(
    ("function", "options", "option"),
    [
        (plain, {"executor": "async"}, "executor"),
        (coroutine, {"executor": "thread"}, "executor"),
        (plain, {"executor": "fiber"}, "executor"),
        (plain, {"memory": 1_000}, "memory"),
        (plain, {"memory": "1GB"}, "memory"),
        (plain, {"memory": True}, "memory"),
        (plain, {"memory": 50_000_000, "executor": "thread"}, "memory"),
        (plain, {"grace": -1}, "grace"),
        (plain, {"grace": 11}, "grace"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(
    memory: Detent, function: Any, options: dict[str, Any], option: str
) -> None:
    with pytest.raises(BadOption) as told:
        memory.job(**options)(function)
    assert told.value.fields["option"] == option
    assert told.value.message.startswith(f"{function.__name__}: ")
    assert not memory.jobs


@pytest.mark.parametrize("option", ["executor", "memory", "grace", "secret", "name"])
def test_a_call_has_no_say_in_it(memory: Detent, option: str) -> None:
    options: dict[str, Any] = {option: "process"}
    with pytest.raises(BadOption, match="declared with the job"):
        memory.job(plain).using(**options)


@pytest.mark.parametrize(
    ("function", "fields", "means", "kind"),
    [
        (plain, {}, Means(), Kind.THREAD),
        (coroutine, {}, Means(), Kind.ASYNC),
        (plain, {"active_us": 1}, Means(), Kind.PROCESS),
        (coroutine, {"active_us": 1}, Means(), Kind.ASYNC),
        (plain, {"active_us": 1}, Means(Kind.THREAD), Kind.THREAD),
        (coroutine, {}, Means(Kind.PROCESS), Kind.PROCESS),
        (coroutine, {"losses": 1}, Means(Kind.ASYNC), Kind.PROCESS),
        (coroutine, {}, Means(memory_bytes=1), Kind.PROCESS),
    ],
)
def test_where_it_belongs(function: Any, fields: dict[str, Any], means: Means, kind: Kind) -> None:
    one = stored(**fields)
    assert kind_of(one, function, means) is kind
    assert is_alone(one) == bool(fields.get("losses"))


def test_a_worker_without_processes_does_what_it_can() -> None:
    few = (Kind.ASYNC, Kind.THREAD)
    assert chosen(Kind.PROCESS, plain, few) is Kind.THREAD
    assert chosen(Kind.PROCESS, coroutine, few) is Kind.ASYNC
    assert chosen(Kind.THREAD, plain, few) is Kind.THREAD
    assert chosen(Kind.PROCESS, plain, tuple(Kind)) is Kind.PROCESS
