"""What is kept beside a job, and for how long: notes, checkpoints, metadata, erasing, retention."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.job.table import Cause
from detent.lifecycle.retry import Exhaustion, RetryPolicy, Verdict
from detent.stores.api import (
    Body,
    Committed,
    Failure,
    Idempotency,
    Key,
    Line,
    Note,
    Own,
    Retention,
    Stored,
    Taken,
    Unique,
    key_of,
)
from detent.stores.select import Filter, Only, Page
from tests.contract.making import NEVER, SECOND, SYSTEM, USER, WORKER
from tests.contract.world import World

FULL = Body(
    "mail.send",
    '["secret"]',
    '{"who": "secret"}',
    ("secret",),
    RetryPolicy(max_attempts=7),
    schema="v1",
    key="acme",
)

# --- notes ----------------------------------------------------------------------------------------


async def note(world: World, job: j.Job, **more: Any) -> bool:
    """Whether the store took the word of the job's holder."""
    lease = more.pop("lease", job.lease)
    said = Note(world.now, job.attempt, **more)
    [taken] = await world.store.note([(key_of(job), lease, said)], now=world.now)
    return taken


async def test_the_newest_note_of_the_holder_counts_and_moves_no_version(world: World) -> None:
    job = await world.claimed()
    before = await world.got(job)
    for percent in (10, 70, None):
        assert await note(world, job, percent=percent, text=f"at {percent}")
        said = Note(world.now, 1, percent, f"at {percent}")
        assert await world.got(job) == replace(before, note=said)
    assert len(await world.store.history(key_of(job))) == 2


async def test_only_who_holds_the_lease_is_heard(world: World) -> None:
    job, idle = await world.claimed(), await world.push()
    assert await note(world, job, percent=1)
    assert not await note(world, job, percent=2, lease="another")
    assert not await note(world, idle, percent=2, lease="any")
    assert not await note(world, idle, percent=2, lease="")
    assert not await note(world, replace(job, id="nobody"), percent=2)
    assert not await note(world, replace(job, tenant="t2"), percent=2)
    assert (await world.got(job)).note == Note(world.now, 1, 1)
    assert (await world.got(idle)).note is None


async def test_a_lease_that_has_ended_is_not_heard_and_the_next_one_is(world: World) -> None:
    job = await world.claimed()
    assert await note(world, job, percent=40)
    await world.do(job, j.HandBack(lease=job.lease), WORKER)
    assert not await note(world, job, percent=50)
    [again] = await world.claim(holder="w2")
    assert not await note(world, job, percent=60)
    assert (await world.got(job)).note == Note(world.now, 1, 40)
    assert await note(world, again.job, percent=5)
    assert (await world.got(job)).note == Note(world.now, 2, 5)


async def test_a_note_outlives_the_end_and_every_other_move(world: World) -> None:
    job = await world.claimed()
    assert await note(world, job, percent=99, text="nearly")
    said = Note(world.now, 1, 99, "nearly")
    job = await world.do(job, j.Hold(), USER)
    assert (await world.got(job)).note == said
    done = await world.complete(job)
    assert not await note(world, job, percent=100)
    assert (await world.got(done)).note == said


async def test_many_notes_are_answered_one_by_one(world: World) -> None:
    jobs = [await world.claimed() for _ in range(3)]
    await world.complete(jobs[1])
    notes = [(key_of(job), job.lease or "", Note(world.now, 1, 5)) for job in jobs]
    assert list(await world.store.note(notes, now=world.now)) == [True, False, True]
    assert list(await world.store.note([], now=world.now)) == []


async def test_who_was_offered_a_job_may_say_something_too(world: World) -> None:
    await world.push(profile="engine")
    [offered] = await world.claim(push=True, by=SYSTEM, holder="e1")
    assert await note(world, offered.job, text="queued here")


async def test_a_note_keeps_the_soft_lock_and_the_wake_time(world: World) -> None:
    job = await world.claimed(wire=True, lease_us=SECOND)
    world.clock.move(SECOND)
    [due] = await world.due()
    assert await note(world, job, percent=1)
    assert (await world.got(job)).wake_at == due.stored.wake_at
    assert await world.due() == []


# --- checkpoints and metadata ---------------------------------------------------------------------


async def test_a_checkpoint_is_kept_with_its_event_and_outlives_the_attempt(world: World) -> None:
    job = await world.claimed()
    saved = j.Checkpoint(lease=job.lease, digest="d1")
    job = await world.do(job, saved, WORKER, store={"checkpoint": '{"at": 1}'})
    assert (await world.got(job)).checkpoint == '{"at": 1}'
    assert (await world.store.history(key_of(job)))[-1].digest == "d1"
    await world.do(job, j.HandBack(lease=job.lease), WORKER)
    [again] = await world.claim()
    assert again.checkpoint == '{"at": 1}'
    saved = j.Checkpoint(lease=again.job.lease, digest="d2")
    job = await world.do(again.job, saved, WORKER, store={"checkpoint": '{"at": 2}'})
    done = await world.complete(job)
    assert (await world.got(done)).checkpoint == '{"at": 2}'


async def test_a_checkpoint_of_a_refused_unit_is_not_kept(world: World) -> None:
    job = await world.claimed()
    saved = j.Checkpoint(lease=job.lease, digest="d")
    late = world.make.doing(job, saved, WORKER, store={"checkpoint": "late"})
    await world.do(job, j.Hold(), USER)
    assert (await world.commit(late))[0] != Committed()
    assert (await world.got(job)).checkpoint is None


async def test_metadata_is_replaced_with_its_event_and_nothing_else_is(world: World) -> None:
    job = await world.push(body=FULL)
    await world.do(job, j.Annotate("d"), USER, store={"meta": '{"n": 2}'})
    stored = await world.got(job)
    assert stored.body == replace(FULL, meta='{"n": 2}')
    assert (await world.store.history(key_of(job)))[-1].digest == "d"
    await world.do(stored.job, j.Hold(), USER)
    assert (await world.got(job)).body.meta == '{"n": 2}'


async def test_metadata_may_be_replaced_after_the_end(world: World) -> None:
    done = await world.complete(await world.claimed(body=FULL), result="1")
    await world.do(done, j.Annotate("d"), USER, store={"meta": "[]"})
    stored = await world.got(done)
    assert (stored.body.meta, stored.result) == ("[]", "1")


async def test_metadata_of_a_refused_unit_is_not_kept(world: World) -> None:
    job = await world.push(body=FULL)
    late = world.make.doing(job, j.Annotate("d"), USER, store={"meta": "late"})
    await world.do(job, j.Hold(), USER)
    await world.commit(late)
    assert (await world.got(job)).body == FULL


# --- erasing --------------------------------------------------------------------------------------


async def eventful(world: World, name: str) -> j.Job:
    """An ended job with everything that a job can leave behind."""
    job = await world.claimed(id=name, body=FULL)
    assert await note(world, job, percent=5, text="secret")
    saved = j.Checkpoint(lease=job.lease, digest="d")
    job = await world.do(job, saved, WORKER, store={"checkpoint": "secret"})
    await world.store.append_logs([(key_of(job), Line(1, "secret"))])
    told = {"failure": Failure(1, 1, "x", "secret"), "lines": (Line(2, "secret"),)}
    told |= {"result": "secret"}
    return await world.do(job, j.Fail(lease=job.lease, code="x"), WORKER, verdict=NEVER, store=told)


async def test_erasing_leaves_the_record_its_history_and_nothing_of_what_it_was_about(
    world: World,
) -> None:
    ended, other = await eventful(world, "a"), await eventful(world, "b")
    before, history = await world.got(other), await world.store.history(key_of(ended))
    erased = await world.do(ended, j.Erase(), USER)
    body = Body("mail.send", "null", key="acme", retry=FULL.retry)
    assert await world.got(ended) == Stored(erased, body)
    assert list(await world.store.history(key_of(ended)))[:-1] == list(history)
    assert list(await world.store.logs(key_of(ended))) == []
    assert {one.key for one in await world.store.log_tail()} == {key_of(other)}
    assert await world.got(other) == before
    assert len(await world.store.logs(key_of(other))) == 2


async def test_an_erased_job_is_not_found_by_what_it_was_about(world: World) -> None:
    ended = await eventful(world, "a")
    erased = await world.do(ended, j.Erase(), USER)
    assert list(await world.store.find(Filter(tag="secret"))) == []
    [found] = await world.store.find(Filter(type="mail.send", state="discarded"))
    assert found.job == erased


async def test_nothing_can_be_added_to_what_is_erased(world: World) -> None:
    erased = await world.do(await eventful(world, "a"), j.Erase(), USER)
    lines = [(key_of(erased), Line(3, "late"))]
    assert list(await world.store.append_logs(lines)) == [0]
    told = {"meta": "late", "result": "late", "checkpoint": "late", "lines": (Line(4, "late"),)}
    noted = await world.do(erased, j.Annotate("d"), USER, store=told)
    body = Body("mail.send", "null", key="acme", retry=FULL.retry)
    assert await world.got(noted) == Stored(noted, body)
    assert list(await world.store.log_tail()) == []


async def test_a_refused_erasure_erases_nothing(world: World) -> None:
    ended = await eventful(world, "a")
    before = await world.got(ended)
    late = world.make.doing(ended, j.Erase(), USER)
    await world.do(ended, j.Annotate("d"), USER)
    assert (await world.commit(late))[0] != Committed()
    stored = await world.got(ended)
    assert (stored.body, stored.result, stored.note) == (FULL, before.result, before.note)
    assert len(await world.store.logs(key_of(ended))) == 2


async def test_an_erased_job_keeps_its_id_its_fingerprint_and_its_key(world: World) -> None:
    promise = Idempotency("k", "d", world.now + 60 * SECOND)
    unique = Unique("f", ("cancelled",))
    job = await world.push(id="a", idempotency=promise, unique=unique)
    cancelled = await world.do(job, j.Cancel(), USER)
    erased = await world.do(cancelled, j.Erase(), USER)
    for what, more in [
        ("id", {"id": "a"}),
        ("idempotency", {"idempotency": promise}),
        ("unique", {"unique": unique}),
    ]:
        outcomes = await world.commit(world.make.pushed(**more))  # type: ignore[arg-type]
        assert outcomes == [Taken(what, erased)]


# --- retention ------------------------------------------------------------------------------------


def over(world: World, state: str = "cancelled", **more: Any) -> Retention:
    """All that ended in this state before now, unless something else is said."""
    more.setdefault("before", world.now)
    return Retention(state, **more)


async def ended(world: World, *names: str, **more: Any) -> list[j.Job]:
    """Jobs that were called off, a second apart."""
    jobs = []
    for name in names:
        job = await world.push(id=name, **more)
        jobs.append(await world.do(job, j.Cancel(), USER))
        world.clock.move(SECOND)
    return jobs


async def left(world: World) -> str:
    """The ids that are there."""
    return "".join(sorted(key[1] for key in await world.everything()))


async def seal_all(world: World) -> None:
    """Seal whatever is not."""
    for _ in range(100):
        if await world.store.seal(limit=5) is None:
            return


async def test_what_a_rule_lets_go_is_gone_and_all_that_was_said_of_it(world: World) -> None:
    gone = await eventful(world, "a")
    await world.claimed(id="b")
    await seal_all(world)
    world.clock.move(1)
    assert await world.prune(over(world, "discarded")) == 1
    key = key_of(gone)
    assert list(await world.store.get([key])) == [None]
    assert list(await world.store.history(key)) == []
    assert list(await world.store.logs(key)) == []
    assert [one.job.id for one in await world.store.find(Filter())] == ["b"]
    assert {event.record for event in await world.feed()} == {"b"}
    assert list(await world.store.append_logs([(key, Line(1, "late"))])) == [0]
    assert [(one.state, one.count) for one in await world.store.counts()] == [("active", 1)]
    assert await world.prune(over(world, "discarded")) == 0


async def test_the_feed_goes_on_where_it_was_and_the_seals_still_hold(world: World) -> None:
    await ended(world, *"abc")
    await seal_all(world)
    await world.push(id="d")
    positions = [one.pos for one in await world.fed()]
    sealed = list(await world.store.leaves()), list(await world.store.blocks())
    assert await world.prune(over(world), limit=2) == 2
    assert [one.pos for one in await world.fed()] == positions[4:]
    assert (list(await world.store.leaves()), list(await world.store.blocks())) == sealed
    await world.push(id="e")
    assert [one.pos for one in await world.fed()] == [*positions[4:], len(positions) + 1]
    block = await world.store.seal()
    assert block is not None
    assert (block.first_pos, block.count) == (7, 2)
    assert [one.pos for one in await world.store.feed(3, 3)] == [5, 6, 7]


async def test_leaves_are_read_page_by_page(world: World) -> None:
    await ended(world, *"abc")
    await world.store.seal(limit=4)
    leaves = list(await world.store.leaves())
    assert [pos for pos, _ in leaves] == [1, 2, 3, 4]
    assert list(await world.store.leaves(1, 2)) == leaves[1:3]
    assert list(await world.store.leaves(4)) == []
    await world.store.seal()
    assert [pos for pos, _ in await world.store.leaves(3)] == [4, 5, 6]


async def test_nothing_goes_that_is_not_sealed_to_its_last_event(world: World) -> None:
    jobs = await ended(world, *"abc")
    await world.store.seal(limit=3)
    assert await world.prune(over(world)) == 1
    assert await left(world) == "bc"
    await seal_all(world)
    await world.do(jobs[1], j.Annotate("d"), USER)
    assert await world.prune(over(world)) == 1
    assert await left(world) == "b"
    await seal_all(world)
    assert await world.prune(over(world)) == 1


async def test_only_what_ended_goes_and_only_before_the_instant(world: World) -> None:
    await ended(world, *"abc")
    await world.push(id="live")
    await world.push(id="later", run_at=world.now + SECOND)
    await seal_all(world)
    start = world.now - 3 * SECOND
    world.clock.move(1)
    assert await world.prune(over(world, before=start)) == 0
    assert await world.prune(over(world, before=start + 1)) == 1
    assert await world.prune(over(world, before=start + SECOND)) == 0
    states = ("scheduled", "available", "pending", "active", "retryable")
    assert await world.prune(*(over(world, state) for state in states)) == 0
    assert await world.prune(over(world, "completed"), over(world, "discarded")) == 0
    assert await world.prune(over(world)) == 2
    assert await left(world) == "laterlive"


async def test_a_rule_may_be_for_one_tenant_or_one_queue(world: World) -> None:
    await ended(world, "a")
    await ended(world, "b", queue="other")
    await ended(world, "c", tenant="t", queue="other")
    await ended(world, "d", tenant="t")
    await seal_all(world)
    assert await world.prune(over(world, tenant="t", queue="none")) == 0
    assert await world.prune(over(world, tenant="t", queue="other")) == 1
    assert await left(world) == "abd"
    assert await world.prune(over(world, queue="other")) == 1
    assert await left(world) == "ad"
    assert await world.prune(over(world, tenant="")) == 1
    assert await left(world) == "d"


FINAL = Verdict(retry=False, delay_us=0, cause=Cause.EXHAUSTED)
KEPT = Body("mail.send", retry=RetryPolicy(on_exhaustion=Exhaustion.DEAD_LETTER))


async def failed(world: World, name: str, cause: Cause, body: Body) -> j.Job:
    """A job that was discarded for this reason."""
    job = await world.claimed(id=name, body=body)
    lease, verdict = job.lease, replace(FINAL, cause=cause)
    fail = j.Fail(lease=lease, code="boom")
    return await world.do(job, fail, WORKER, verdict=verdict, store={"lease": lease})


async def letters(world: World) -> str:
    """The ids of those that are found as dead letters."""
    found = await world.store.find(Filter(state="discarded", only=Only.LETTERS))
    return "".join(sorted(one.job.id for one in found))


async def test_dead_letters_are_told_from_what_is_merely_discarded(world: World) -> None:
    plain = Body("mail.send", retry=RetryPolicy(non_retryable=('"on_exhaustion":"dead_letter"',)))
    for name, cause, body in [
        ("a", Cause.EXHAUSTED, KEPT),
        ("b", Cause.NOT_RETRYABLE, KEPT),
        ("c", Cause.DISCARD_ASKED, KEPT),
        ("d", Cause.DEAD_LETTER_ASKED, Body("mail.send")),
        ("e", Cause.EXHAUSTED, plain),
        ("f", Cause.EXHAUSTED, Body("mail.send")),
    ]:
        await failed(world, name, cause, body)
    await world.do(await world.push(id="g", body=KEPT), j.Drop(), SYSTEM)
    assert await letters(world) == "abd"
    assert len(await world.store.find(Filter(state="discarded", only=Only.LETTERS), Page(2))) == 2
    assert list(await world.store.find(Filter(state="completed", only=Only.LETTERS))) == []
    await world.do((await world.store.get([("", "a")]))[0].job, j.Erase(), USER)  # type: ignore[union-attr]
    assert await letters(world) == "bd"


async def test_a_rule_may_keep_dead_letters(world: World) -> None:
    await failed(world, "a", Cause.EXHAUSTED, KEPT)
    await failed(world, "b", Cause.EXHAUSTED, Body("mail.send"))
    await failed(world, "c", Cause.DEAD_LETTER_ASKED, Body("mail.send"))
    await seal_all(world)
    world.clock.move(1)
    assert await world.prune(over(world, "discarded", letters=False)) == 1
    assert await left(world) == "ac"
    assert await world.prune(over(world, "discarded")) == 2


async def test_it_is_enough_that_one_rule_lets_it_go(world: World) -> None:
    await ended(world, *"ab")
    await world.complete(await world.claimed(id="c"))
    world.clock.move(1)
    await seal_all(world)
    assert await world.prune() == 0
    rules = [over(world, before=0), over(world, queue="none"), over(world, "completed")]
    assert await world.prune(*rules) == 1
    assert await world.prune(over(world), over(world), over(world, tenant="")) == 2


async def test_the_oldest_ends_go_first_and_no_more_than_asked_for(world: World) -> None:
    await ended(world, *"dbcae")
    await seal_all(world)
    assert await world.prune(over(world), limit=0) == 0
    assert await world.prune(over(world), limit=2) == 2
    assert await left(world) == "ace"
    assert await world.prune(over(world), limit=2) == 2
    assert await left(world) == "e"
    assert await world.prune(over(world), limit=2) == 1


async def test_callers_at_the_same_time_let_each_job_go_once(world: World) -> None:
    await ended(world, *(f"j{number:02}" for number in range(12)))
    await seal_all(world)
    rules, now = [over(world)], world.now
    numbers = await asyncio.gather(*(world.store.prune(rules, now=now, limit=3) for _ in range(6)))
    assert sum(numbers) == 12
    assert await left(world) == ""


async def test_what_is_gone_is_in_nobodys_way(world: World) -> None:
    promise = Idempotency("k", "d", world.now + 3_600 * SECOND)
    unique = Unique("f", ("cancelled", "available"))
    await ended(world, "a", idempotency=promise, unique=unique)
    await seal_all(world)
    assert await world.prune(over(world)) == 1
    await world.push(id="a", idempotency=promise, unique=unique)
    [taken] = await world.commit(world.make.pushed(idempotency=promise))
    assert isinstance(taken, Taken)
    assert [event.version for event in await world.store.history(("", "a"))] == [1]


async def test_a_key_that_has_run_out_goes_and_one_that_has_not_stays(world: World) -> None:
    short, long = (Idempotency(k, "d", world.now + s * SECOND) for k, s in [("s", 5), ("l", 60)])
    job = await world.push(idempotency=short)
    other = await world.push(idempotency=long)
    world.clock.move(5 * SECOND)
    assert await world.prune() == 0
    await world.push(idempotency=replace(short, expires_at=world.now + SECOND))
    assert await world.commit(world.make.pushed(idempotency=long)) == [Taken("idempotency", other)]
    assert (await world.got(job)).job == job


async def test_an_erased_job_goes_like_any_other(world: World) -> None:
    [job] = await ended(world, "a")
    await world.do(job, j.Erase(), USER)
    await seal_all(world)
    assert await world.prune(over(world)) == 1


async def test_a_command_on_a_job_that_is_gone_finds_nothing(world: World) -> None:
    [job] = await ended(world, "a")
    late = world.make.doing(job, j.Annotate("d"), USER)
    await seal_all(world)
    await world.prune(over(world))
    [stale] = await world.commit(late)
    assert (stale.key, stale.now) == (key_of(job), None)  # type: ignore[union-attr]


# --- retention of workflows -----------------------------------------------------------------------


async def finished(world: World, name: str, *, jobs: int = 2, **more: Any) -> list[j.Job]:
    """A workflow of one step whose jobs have all completed."""
    new = [
        world.make.new(id=f"{name}{number}", workflow=name, step=f"{name}-s", **more)
        for number in range(jobs)
    ]
    await world.make_flow(name, w.chain(f"{name}-s"), *new, **more)
    done = [await world.complete(one.job) for one in await world.claim(9, **more)]
    world.clock.move(SECOND)
    return done


async def flow_keys(world: World) -> list[Key]:
    """The workflows that are there."""
    return sorted(key_of(one) for one in await world.store.find_workflows())


async def test_members_of_a_workflow_that_goes_on_stay(world: World) -> None:
    new = [world.make.new(workflow="w", step="s") for _ in range(2)]
    await world.make_flow("w", w.chain("s"), *new)
    one, two = await world.claim(2)
    await world.complete(one.job)
    world.clock.move(SECOND)
    await seal_all(world)
    assert await world.prune(over(world, "completed")) == 0
    await world.complete(two.job)
    world.clock.move(SECOND)
    await seal_all(world)
    assert await world.prune(over(world, "completed")) == 2


async def test_a_workflow_goes_with_its_last_job_and_not_before(world: World) -> None:
    await finished(world, "w")
    before = await world.flow("w")
    await seal_all(world)
    assert await world.prune(over(world, "completed"), limit=1) == 1
    assert await world.flow("w") == before
    assert await world.prune(over(world, "completed"), limit=1) == 1
    assert list(await world.store.flows([("", "w")])) == [None]
    assert await flow_keys(world) == []
    assert await world.feed() == []
    for key in ("w", "w-s"):
        assert list(await world.store.history(("", key))) == []


async def test_a_workflow_that_is_gone_may_be_made_anew(world: World) -> None:
    await finished(world, "w")
    await seal_all(world)
    await world.prune(over(world, "completed"))
    await finished(world, "w", jobs=1)
    assert (await world.flow("w")).workflow.state == "completed"


async def test_an_unsealed_end_of_a_workflow_keeps_it(world: World) -> None:
    done = await finished(world, "w", jobs=1)
    positions = [one.pos for one in await world.fed() if one.event.record == done[0].id]
    await world.store.seal(limit=positions[-1])
    assert await world.prune(over(world, "completed")) == 1
    assert await flow_keys(world) == [("", "w")]
    await seal_all(world)
    assert await world.prune(over(world, "completed")) == 0
    assert await flow_keys(world) == []


async def test_a_workflow_that_ended_later_than_the_rule_says_stays(world: World) -> None:
    """Its last job had ended long before it was aborted."""
    new = world.make.new(workflow="w", step="s")
    await world.make_flow("w", w.stages("s", "t"), new)
    [taken] = await world.claim()
    await world.complete(taken.job)
    world.clock.move(SECOND)
    between = world.now
    world.clock.move(SECOND)
    await world.must(world.make.flowing(await world.flow("w"), w.Abort()))
    world.clock.move(SECOND)
    await seal_all(world)
    assert await world.prune(over(world, "completed", before=between)) == 1
    assert await flow_keys(world) == [("", "w")]
    assert await world.prune(over(world, "completed")) == 0
    assert await flow_keys(world) == []


async def test_workflows_of_one_name_in_two_tenants_go_one_by_one(world: World) -> None:
    for tenant in ("", "t"):
        await finished(world, "w", tenant=tenant)
    await seal_all(world)
    assert await world.prune(over(world, "completed", tenant="t")) == 2
    assert await flow_keys(world) == [("", "w")]
    assert len(await world.everything()) == 2


async def test_own_is_not_remembered_beyond_retention(world: World) -> None:
    unit = world.make.pushed(id="a")
    await world.must(unit)
    assert await world.commit(unit) == [Own()]
    await world.do(unit.new[0].job, j.Cancel(), USER)
    world.clock.move(1)
    await seal_all(world)
    assert await world.prune(over(world)) == 1
    assert await world.commit(unit) == [Committed()]
