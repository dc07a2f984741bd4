"""From a call to a stored job: options, uniqueness, limits, batches, both ways to call."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from detent import Backoff, Detent, DetentError, JobExists, Limit, Unique
from detent.app.connection import DEFAULT_URL, url_of
from detent.engine import limits
from detent.errors import (
    BadArguments,
    BadOption,
    BadPolicy,
    BatchTooLarge,
    IllegalTransition,
    InsideLoop,
    NameTooLong,
    PayloadTooDeep,
    PayloadTooLarge,
    TooMany,
)
from detent.stores.api import Stored
from detent.testing import VirtualClock


def stored(app: Detent, id_: str, tenant: str = "") -> Stored:
    async def get() -> Stored:
        [found] = await (await app.engine()).store.get([(tenant, id_)])
        assert found is not None
        return found

    return app.bridge.run(get())


def send(to: str, size: int = 1) -> str:
    return f"{to}:{size}"


def test_the_address_is_given_or_in_the_environment_or_a_file_here() -> None:
    both = {"DETENT_URL": "a:", "DATABASE_URL": "b:"}
    assert url_of("c:", both) == "c:"
    assert url_of(None, both) == "a:"
    assert url_of(None, {"DATABASE_URL": "b:"}) == "b:"
    assert url_of(None, {}) == DEFAULT_URL == "sqlite:detent.db"


def test_a_job_is_called_as_before_and_enqueued_with_the_same_arguments(app: Detent) -> None:
    job = app.job(send)
    assert job("a", 2) == "a:2"
    assert (job.name, inspect.unwrap(job)) == ("send", send)
    handle = job.enqueue("a", size=2)
    assert stored(app, handle.id).body.payload == '{"args":[],"kwargs":{"to":"a","size":2}}'
    assert handle.is_new
    assert handle.history()[0].actor_id == "python"


def test_the_nearest_word_counts() -> None:
    with Detent("memory:", queue="app", priority=1, tenant="t", actor="shop") as app:
        job = app.job(name="mail.send", queue="type")(send)
        record = stored(app, job.using(priority=9).enqueue("a").id, "t")
        assert (record.job.queue, record.job.priority) == ("type", 9)
        assert record.body.type == "mail.send"
        assert app.handle(record.job.id, "t").history()[0].actor_id == "shop"


def test_every_option_arrives(app: Detent) -> None:
    job = app.job(
        retry=Backoff(retries=4, first=2, most=timedelta(minutes=1), never=(KeyError, "x.Y")),
        timeout=timedelta(seconds=30),
        queue_timeout=60,
        expires=3600,
        losses=7,
        key="customer:{to}",
        tags=["a", "b"],
        meta={"n": [1]},
    )(send)
    record = stored(app, job.using(delay=10).enqueue("ada").id)
    made, body = record.job, record.body
    assert made.state == "scheduled"
    assert made.run_at == made.created_at + 10_000_000
    assert (made.active_us, made.available_us) == (30_000_000, 60_000_000)
    assert made.expires_at == made.created_at + 3_600_000_000
    assert (made.allowed, body.retry.max_attempts) == (5, 5)
    assert made.losses_allowed == 7
    assert (body.retry.initial_us, body.retry.max_us) == (2_000_000, 60_000_000)
    assert body.retry.non_retryable == ("KeyError", "x.Y")
    assert (body.key, body.tags, body.meta) == ("customer:ada", ("a", "b"), '{"n":[1]}')


def test_moments_are_datetimes_with_a_zone(app: Detent, clock: VirtualClock) -> None:
    job = app.job(send)
    at = clock.now + timedelta(days=1)
    handle = job.using(at=at, expires=at + timedelta(days=1)).enqueue("a")
    assert handle.status().run_at == at


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"at": datetime(2030, 1, 1)}, BadOption),  # noqa: DTZ001 - that is what is refused
        ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 1}, BadOption),
        ({"expires": datetime(2030, 1, 1)}, BadOption),  # noqa: DTZ001
        ({"key": "{nobody}"}, BadOption),
        ({"meta": {"a": object()}}, BadOption),
        ({"quue": "a"}, BadOption),
        ({"losses": 0}, BadOption),
        ({"nothing_like_it": "a"}, BadOption),
        ({"retry": 10**9}, BadPolicy),
        ({"queue": ""}, NameTooLong),
        ({"queue": "q" * 256}, NameTooLong),
        ({"tags": ["t"] * 51}, TooMany),
        ({"tags": [""]}, NameTooLong),
        ({"meta": {"a": "x" * 70_000}}, PayloadTooLarge),
        ({"idempotency_key": "k" * 256}, NameTooLong),
        ({"priority": 2**40}, IllegalTransition),
    ],
)
def test_an_option_that_cannot_be_is_refused(
    app: Detent, options: dict[str, Any], error: type[DetentError]
) -> None:
    with pytest.raises(error) as caught:
        app.job(send).using(**options).enqueue("a")
    assert caught.value.code == error.code
    assert app.bridge.run(count(app)) == 0


async def count(app: Detent) -> int:
    return sum(one.count for one in await (await app.engine()).store.counts())


def test_a_wrong_option_is_told_what_was_meant(app: Detent) -> None:
    with pytest.raises(BadOption, match="Did you mean queue"):
        app.job(quue="a")  # type: ignore[call-overload]


def anything(value: Any) -> None:
    """Takes it."""


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_payloads_have_a_size_and_a_depth(app: Detent) -> None:
    job = app.job(anything)
    job.enqueue(nested(62))
    job.enqueue("[" * 1_000 + '"\\"')
    with pytest.raises(PayloadTooDeep) as deep:
        job.enqueue(nested(63))
    assert deep.value.fields == {"limit": "DEPTH_MAX", "most": 64, "value": 65}
    job.enqueue("x" * 1_000_000)
    with pytest.raises(PayloadTooLarge) as large:
        job.enqueue("x" * 1_100_000)
    assert large.value.fields["limit"] == "PAYLOAD_BYTES_MAX"
    with pytest.raises(PayloadTooLarge):
        job.enqueue("\u20ac" * 500_000)


def test_two_jobs_of_one_name_are_refused(app: Detent) -> None:
    app.job(send)
    with pytest.raises(BadOption, match="send"):
        app.job(send)


def test_many_calls_of_any_types_are_enqueued_together(app: Detent) -> None:
    mail, other = app.job(send), app.job(name="other")(send)
    handles = mail.enqueue_many(mail.bind(str(n)) for n in range(1_500))
    assert len({handle.id for handle in handles}) == 1_500
    assert [one.id for one in handles] == sorted(one.id for one in handles)
    mixed = app.enqueue_many([mail.bind("a"), other.using(queue="q").bind("b")])
    assert [one.status().type for one in mixed] == ["send", "other"]
    assert mail.enqueue_many([]) == []
    calls = [mail.bind("a")] * (limits.BATCH_MAX + 1)
    with pytest.raises(TooMany):
        mail.enqueue_many(calls)


def test_what_is_no_call_is_refused_with_a_word_about_bind(app: Detent) -> None:
    @app.job
    def job(what: str) -> None: ...

    for wrong in ([job.bind("a"), ("b",)], ["ab"], [{"what": "b"}]):
        with pytest.raises(BadArguments, match=r"not a call; make calls with bind") as refused:
            job.enqueue_many(wrong)  # type: ignore[arg-type]
        assert refused.value.fields["path"] == f"[{len(wrong) - 1}]"
    assert app.drain() == []


def test_one_bad_call_keeps_all_of_them_out(app: Detent) -> None:
    job = app.job(send)
    with pytest.raises(TooMany):
        job.enqueue_many([job.bind("a"), job.using(tags=["t"] * 51).bind("b")])
    assert app.bridge.run(count(app)) == 0


def test_a_unique_job_gives_way_is_refused_or_takes_the_place(app: Detent) -> None:
    job = app.job(unique=True)(send)
    first = job.enqueue("a")
    second = job.enqueue("a")
    assert (second.id, second.is_new) == (first.id, False)
    assert job.enqueue("a", size=1) == first, "what is left out is what it would be"
    assert job.enqueue("a", size=2) != first
    with pytest.raises(JobExists) as caught:
        job.using(unique=Unique(on_conflict="reject")).enqueue("a")
    told = {"id": first.id, "what": "unique", "state": "available", "enqueued": []}
    assert caught.value.fields == told
    rejecting = job.using(unique=Unique(on_conflict="reject"))
    with pytest.raises(JobExists) as caught:
        rejecting.enqueue_many([rejecting.bind("new"), rejecting.bind("a")])
    [other] = caught.value.fields["enqueued"]
    assert app.handle(other).status().state == "available"
    third = job.using(unique=Unique(on_conflict="replace")).enqueue("a")
    assert third.is_new
    assert first.status().state == "cancelled"
    assert job.using(unique=False).enqueue("a").is_new


def test_uniqueness_may_look_at_some_arguments_and_at_ended_jobs(app: Detent) -> None:
    job = app.job(unique=Unique(by=("to",), within=60))(send)
    first = job.enqueue("a", 1)
    app.drain()
    assert job.enqueue("a", 2).id == first.id
    assert job.enqueue("b", 2).is_new
    short = job.using(unique=Unique(by=("to",)))
    assert short.enqueue("a", 3).is_new


def test_the_same_request_is_one_job(app: Detent) -> None:
    job = app.job(send).using(idempotency_key="order-7")
    first, second = job.enqueue("a"), job.enqueue("a")
    assert (second.id, second.is_new) == (first.id, False)
    with pytest.raises(JobExists) as caught:
        job.enqueue("b")
    assert caught.value.fields["what"] == "idempotency"


def test_a_limit_is_known_to_the_store_before_its_first_job(app: Detent) -> None:
    async def told() -> list[tuple[str, int | None, int | None]]:
        found = await (await app.engine()).store.limits()
        rows = [one.row for one in found]
        return [(row.name, row.limit.concurrency, row.limit.rate) for row in rows if row.limit]

    job = app.job(limit=Limit(concurrency=2), key="to:{to}")(send)
    job.enqueue_many([job.bind("a"), job.bind("b"), job.bind("a")])
    job.using(limit=Limit(rate=5, per=60)).enqueue("b")
    app.job(name="whole", limit=Limit(spacing=1))(send).enqueue("c")
    assert app.bridge.run(told()) == [("to:a", 2, None), ("to:b", None, 5), ("whole", None, None)]


async def test_one_loop_serves_every_other(app: Detent) -> None:
    job = app.job(send)
    handles = await asyncio.gather(*(job.aenqueue(str(n)) for n in range(50)))
    assert len({handle.id for handle in handles}) == 50
    assert (await asyncio.to_thread(job.enqueue, "x")).is_new
    many = await job.aenqueue_many([job.bind("y")])
    assert (await many[0].astatus()).state == "available"
    with pytest.raises(InsideLoop, match="begins with an a"):
        job.enqueue("z")
    with pytest.raises(InsideLoop, match="adrain"):
        app.drain()


async def test_where_a_loop_runs_an_app_is_closed_by_awaiting(tmp_path: Path) -> None:
    async with Detent(f"sqlite:///{tmp_path}/detent.db") as app:
        handle = await app.job(send).aenqueue("ada")
        with pytest.raises(InsideLoop):
            app.close()
        was_open = app.connection.ready is not None
    assert (was_open, app.connection.ready) == (True, None)
    assert (await handle.astatus()).state == "available", "it is opened again when it is needed"
    await app.aclose()


def test_an_app_can_be_used_again_after_it_was_closed(app: Detent) -> None:
    job = app.job(send)
    job.enqueue("a")
    app.close()
    app.close()
    assert job.enqueue("b").is_new


def test_a_store_that_cannot_be_opened_is_tried_again() -> None:
    with Detent("nosuch:") as app:
        job = app.job(send)
        for _ in range(2):
            with pytest.raises(DetentError, match="No store is called"):
                job.enqueue("a")


def test_batches_of_a_store_are_not_those_of_the_api() -> None:
    assert BatchTooLarge.code != TooMany.code
