"""People do things to jobs, queues and types by hand: who and why stands in the history."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import Detent, Found, Handle, Job
from detent.app import selecting
from detent.errors import BadOption, IllegalTransition, InsideLoop, UnknownJob
from detent.testing import VirtualClock

HOUR = timedelta(hours=1)


@pytest.fixture
def work(app: Detent) -> Job[..., Any, ..., Any]:
    @app.job(queue="mail")
    def work(number: int) -> int:
        return number

    return work


def last(handle: Handle[Any]) -> tuple[str, str, str | None]:
    event = handle.history()[-1]
    return event.name, event.actor_id, event.reason


def test_why_says_what_a_job_waits_for_who_has_it_and_how_it_ended(
    app: Detent, work: Job[..., Any, ..., Any], clock: VirtualClock
) -> None:
    later = work.using(delay=60).enqueue(1)
    why = later.why()
    assert (why.id, why.state, why.is_waiting) == (later.id, "scheduled", True)
    due = {one.name: one for one in why.obstacles}["due"]
    assert (due.is_met, due.clears_at) == (False, clock.now + timedelta(seconds=60))
    assert why.expected_at is None, "there is no worker that could start it"
    handle = work.enqueue(1)
    app.pause("closed for today", queue="mail", actor="ada")
    assert "mail" in str(asyncio.run(handle.awhy()))
    app.resume(queue="mail")
    app.drain()
    ended = handle.why()
    assert (ended.state, ended.is_waiting, ended.obstacles) == ("completed", False, ())
    with pytest.raises(UnknownJob):
        app.handle("nobody").why()


def test_one_job_is_held_moved_reprioritised_and_run_now(
    app: Detent, work: Job[..., Any, ..., Any], clock: VirtualClock
) -> None:
    handle = work.enqueue(1)
    handle.hold("wait", actor="ada")
    assert last(handle) == ("held", "ada", "wait")
    assert app.drain() == []
    assert handle.release("go on").state == "available"
    assert last(handle)[1:] == ("python", "go on")
    assert handle.reprioritise(7).priority == 7
    assert asyncio.run(handle.amove("slow", "too many")).queue == "slow"
    timed = work.using(delay=60).enqueue(2)
    at = clock.now + HOUR
    assert timed.reschedule(at, "later").run_at == at
    assert timed.run_now("now", actor="ada").state == "available"
    assert timed.run_now().state == "available"
    assert sorted(app.drain()) == sorted([handle.id, timed.id])
    assert handle.result() == 1


def test_an_ended_job_is_run_again_as_a_new_one(app: Detent, work: Job[..., Any, ..., Any]) -> None:
    handle = work.enqueue(3)
    with pytest.raises(IllegalTransition):
        handle.rerun("too early")
    app.drain()
    again = handle.rerun("once more", actor="ada")
    assert again.id != handle.id
    event = again.history()[0]
    assert (event.actor_id, event.reason) == ("ada", "once more")
    app.drain()
    assert again.result() == 3
    with pytest.raises(IllegalTransition):
        handle.cancel("too late")
    with pytest.raises(UnknownJob):
        app.handle("nobody").hold()


def test_a_queue_or_a_type_is_paused_and_resumed(
    app: Detent, work: Job[..., Any, ..., Any]
) -> None:
    handle = work.enqueue(1)
    for what in ({"queue": "mail"}, {"type": "work"}):
        assert app.pause("not now", **what)
        assert not app.pause("again", **what)
        assert app.drain() == []
        assert asyncio.run(app.aresume("go on", **what))
    assert app.drain() == [handle.id]
    for wrong in ({}, {"queue": "a", "type": "b"}):
        with pytest.raises(BadOption, match="queue="):
            app.pause("why", **wrong)


def test_many_are_changed_by_what_they_are_after_a_dry_run(
    app: Detent, work: Job[..., Any, ..., Any]
) -> None:
    mails = work.enqueue_many(work.bind(number) for number in range(5))
    other = work.using(queue="other").enqueue(9)
    chosen = app.select(queue="mail", state="available")
    foreseen = chosen.cancel("spam", dry_run=True)
    assert (foreseen.seen, foreseen.accepted) == (5, 5)
    assert {one.status().state for one in mails} == {"available"}
    assert chosen.hold("wait", limit=2).accepted == 2
    assert chosen.release().accepted == 2
    assert chosen.reprioritise(3, actor="ada").accepted == 5
    assert last(mails[0])[1] == "ada"
    assert chosen.move("slow", "room").accepted == 5
    assert asyncio.run(app.select(queue="slow").acancel("spam")).accepted == 5
    assert {one.status().state for one in mails} == {"cancelled"}
    made = app.select(state="cancelled").rerun("no spam after all")
    assert (made.accepted, len(made.made)) == (5, 5)
    assert app.select(state="cancelled").rerun("again").unchanged == 5
    assert len(app.drain()) == 6
    assert other.result() == 9


def test_many_that_wait_for_their_time(
    app: Detent, work: Job[..., Any, ..., Any], clock: VirtualClock
) -> None:
    later = [work.using(delay=60).enqueue(one) for one in range(3)]
    chosen = app.select(state="scheduled")
    assert chosen.reschedule(datetime(2100, 1, 1, tzinfo=UTC), "much later").accepted == 3
    clock.advance(120)
    assert app.drain() == []
    assert chosen.run_now("after all").accepted == 3
    assert len(app.drain()) == len(later)


def test_the_selected_are_looked_at_newest_first_a_page_at_a_time(
    app: Detent, work: Job[..., Any, ..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selecting, "_PAGE", 2)
    chosen = app.select(queue="mail", state="available")
    assert (list(chosen), chosen.first(), chosen.count()) == ([], None, 0)
    handles = [work.using(tags=["odd"] if one % 2 else []).enqueue(one) for one in range(5)]
    newest = [handle.id for handle in reversed(handles)]

    async def looked() -> tuple[list[str], int, Found | None]:
        return [one.id async for one in chosen], await chosen.acount(), await chosen.afirst()

    ids, count, first = asyncio.run(looked())
    assert (ids, count, first and first.id) == (newest, 5, newest[0])
    assert app.select(tag="odd").count() == 2
    walk = iter(chosen)
    seen = [next(walk)]
    late = work.enqueue(9)
    handles[1].cancel("while others look")
    seen += walk
    assert [one.id for one in seen] == [one for one in newest if one != handles[1].id]
    assert late.id in {one.id for one in chosen}


def test_what_was_found_knows_how_it_stood(app: Detent, work: Job[..., Any, ..., Any]) -> None:
    handle = work.enqueue(3)
    [found] = app.select()
    assert found.seen == handle.status()

    async def inside() -> None:
        list(app.select())

    with pytest.raises(InsideLoop, match="async for"):
        asyncio.run(inside())
    app.drain()
    assert (found.seen.state, found.status().state, found.result()) == ("available", "completed", 3)


def test_a_selection_must_say_something_that_there_is(app: Detent) -> None:
    with pytest.raises(BadOption, match="needs to say which"):
        app.select().cancel()
    with pytest.raises(BadOption, match="selected by"):
        app.select(quue="mail")  # type: ignore[call-arg]
    with pytest.raises(BadOption, match="one of scheduled"):
        app.select(state="discarde")
