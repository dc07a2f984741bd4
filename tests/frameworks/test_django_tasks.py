"""Django's tasks on a store of ours: enqueued, deferred, run, and asked for their results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.local import Local
from django.db import connections, transaction

from detent import Detent
from detent.errors import BadOption
from detent.frameworks.django import url_of
from detent.stores import run_migrations
from detent.testing import Rig, VirtualClock
from tests.frameworks import shop_tasks
from tests.frameworks.shop_tasks import BACKEND, PACKAGE, Declined
from tests.frameworks.test_django import facts_of, known


class Shop:
    """The tasks, put where Django finds them, on an app of its own."""

    def __init__(self, app: Detent, clock: VirtualClock) -> None:
        self.app, self.clock = app, clock
        shop_tasks.app = app
        self.add, self.slow, self.fails, self.told, self.naps = shop_tasks.tasks()

    def run(self, result: Any) -> Any:
        self.app.drain()
        result.refresh()
        return result


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    clock = VirtualClock()
    with Detent("memory:", clock=clock) as app:
        made = Shop(app, clock)
        for name in ("add", "slow", "fails", "told", "naps"):
            monkeypatch.setattr(shop_tasks, name, getattr(made, name))
        yield made


def test_a_task_runs_and_its_result_is_there_for_whoever_asks(shop: Shop) -> None:
    result = shop.add.enqueue(1, b=2)
    assert (result.status, result.attempts, result.args) == ("READY", 0, [1])
    assert result.enqueued_at is not None
    with pytest.raises(ValueError, match="not finished"):
        _ = result.return_value
    shop.run(result)
    assert (result.status, result.attempts, result.return_value) == ("SUCCESSFUL", 1, 3)
    again = shop.add.get_result(result.id)
    assert (again.return_value, again.kwargs, again.worker_ids) == (3, {"b": 2}, result.worker_ids)
    assert again.enqueued_at <= again.started_at <= again.last_attempted_at <= again.finished_at


def test_awaited_and_with_a_coroutine(shop: Shop) -> None:
    async def work() -> Any:
        return await shop.slow.aenqueue(5)

    result = shop.run(asyncio.run(work()))
    assert asyncio.run(shop.slow.aget_result(result.id)).return_value == 5


def test_a_failure_tells_its_class_and_traceback(shop: Shop) -> None:
    result = shop.run(shop.fails.enqueue(7))
    assert result.status == "FAILED"
    [error] = result.errors
    assert error.exception_class is Declined
    assert "no 7" in error.traceback
    with pytest.raises(ValueError, match="failed"):
        _ = result.return_value


def test_the_context_knows_the_attempt_and_the_result(shop: Shop) -> None:
    result = shop.run(shop.told.enqueue(3))
    assert result.return_value == [1, result.id, 3]


def test_deferred_and_by_priority(shop: Shop) -> None:
    hour = datetime.fromtimestamp(shop.clock() / 1_000_000, UTC) + timedelta(hours=1)
    late = shop.add.using(run_after=hour).enqueue(1)
    low, high = (shop.add.using(priority=one).enqueue(1) for one in (-100, 100))
    assert shop.app.drain() == [high.id, low.id]
    assert shop.add.get_result(low.id).task.priority == -100
    waiting = shop.add.get_result(late.id)
    assert (waiting.status, waiting.task.run_after) == ("READY", hour)
    shop.clock.advance(3_600)
    assert shop.app.drain() == [late.id]


def test_cancelled_is_failed_and_unknown_is_unknown(shop: Shop) -> None:
    result = shop.add.enqueue(1)
    shop.app.handle(result.id).cancel()
    assert shop.run(result).status == "FAILED"
    missing = PACKAGE.exceptions.TaskResultDoesNotExist
    mismatch = PACKAGE.exceptions.TaskResultMismatch
    with pytest.raises(missing):
        shop.add.get_result("nobody")
    with pytest.raises(mismatch):
        shop.fails.get_result(result.id)

    @shop.app.job
    def foreign() -> None: ...

    with pytest.raises(missing):
        shop.add.get_result(foreign.enqueue().id)


def test_what_is_no_json_is_refused_at_enqueue(shop: Shop) -> None:
    with pytest.raises(TypeError):
        shop.add.enqueue(object())
    assert shop.app.drain() == []


def test_signals_are_sent(shop: Shop) -> None:
    heard: list[tuple[str, str]] = []

    def hear(name: str) -> Any:
        def on(task_result: Any, **_: Any) -> None:
            heard.append((name, task_result.status))

        getattr(PACKAGE.signals, name).connect(on)
        return on

    kept = [hear(name) for name in ("task_enqueued", "task_started", "task_finished")]
    shop.run(shop.add.enqueue(1))
    shop.run(shop.fails.enqueue(1))
    shop.run(shop.naps.enqueue(1))
    assert heard == [
        *(("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", "SUCCESSFUL")),
        *(("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_finished", "FAILED")),
        # One that wants to be run again has not failed.
        *(("task_enqueued", "READY"), ("task_started", "RUNNING"), ("task_started", "RUNNING")),
        ("task_finished", "SUCCESSFUL"),
    ]
    assert len(kept) == 3


def _kept_in(alias: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The task `add`, of a backend on that database."""
    monkeypatch.setitem(BACKEND, "OPTIONS", {"database": alias})
    # Backends are made once per thread; this is where Django keeps them.
    monkeypatch.setattr(PACKAGE.task_backends, "_connections", Local())
    (add, *_) = shop_tasks.tasks()
    monkeypatch.setattr(shop_tasks, "add", add)
    return add


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_a_task_lives_and_dies_with_its_atomic_block(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = known(f"tasks of {database} {tmp_path}", facts_of(database, tmp_path))
    run_migrations(url_of(alias))
    add = _kept_in(alias, monkeypatch)
    with transaction.atomic(using=alias):
        kept = add.enqueue(1)
        with transaction.atomic(using=alias):
            add.enqueue(2)
            transaction.set_rollback(True, using=alias)
    app = add.get_backend().app
    assert app.drain() == [kept.id]
    kept.refresh()
    assert kept.return_value == 2
    app.close()
    connections[alias].close()


def test_a_database_that_django_puts_in_its_place_for_tests_is_the_one_that_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = known(f"real {tmp_path}", facts_of("sqlite", tmp_path))
    run_migrations(url_of(alias))
    add = _kept_in(alias, monkeypatch)
    add.enqueue(1)  # in the real one, where it is to stay
    connections[alias].close()
    monkeypatch.setitem(connections[alias].settings_dict, "NAME", tmp_path / "test.db")
    run_migrations(url_of(alias))
    tried = add.enqueue(2)
    app = add.get_backend().app
    assert app.drain() == [tried.id]
    app.close()
    connections[alias].close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"databse": "other"}, "Did you mean database"),
        ({"retry": -1}, "how often"),
        ({"app": "os.path", "database": None}, "the path of a Detent"),
    ],
)
def test_options_that_cannot_be_are_refused(
    options: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKEND, "OPTIONS", options)
    monkeypatch.setattr(PACKAGE.task_backends, "_connections", Local())
    with pytest.raises(BadOption, match=said):
        shop_tasks.tasks()


def test_a_rig_runs_tasks_in_the_transaction_of_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = known(f"rigged {tmp_path}", facts_of("postgresql", tmp_path))
    add = _kept_in(alias, monkeypatch)
    with transaction.atomic(using=alias), Rig(add.get_backend().app) as rig:
        before = connections[alias].connection
        result = add.enqueue(1)
        rig.drain()
        result.refresh()
        assert result.return_value == 2
        # Around a run of a worker Django would have closed it, in the middle of the transaction.
        assert connections[alias].connection is before
        connections[alias].ensure_connection()
        assert connections[alias].is_usable()
    connections[alias].close()


def test_workers_serve_the_queues_of_tasks_and_of_the_settings(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKEND, "QUEUES", ["default", "mail", "slow"])
    monkeypatch.setattr(PACKAGE.task_backends, "_connections", Local())
    shop.app.jobs.clear()
    plain = getattr(shop_tasks.add, "func", shop_tasks.add)
    add = PACKAGE.task(backend="detent", queue_name="mail")(plain)
    monkeypatch.setattr(shop_tasks, "add", add)

    async def run() -> set[Any]:
        results = [await one.aenqueue(1) for one in (add, add.using(queue_name="slow"))]
        async with shop.app.working():
            return {await shop.app.handle(one.id).aresult(timeout=30) for one in results}

    assert asyncio.run(run()) == {2}
    assert set(shop.app.queues) == {"default", "mail", "slow"}
