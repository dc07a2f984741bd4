"""Worker instances: who they are, how they are known to be gone, what happened to them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detent.errors import BadHistory, BadName
from detent.lifecycle import job as j
from detent.stores.api import Death, Process, Retention, Who, WorkerRow
from tests.contract.living import born, life, whole
from tests.contract.making import SECOND, WORKER
from tests.contract.world import HOUR, World

HERE = Process("host-a", "boot-1", 4711, 123_456)
WHO = Who(
    supervisor="s1",
    process=HERE,
    started_at=5,
    slot="mail",
    slots=4,
    queues=("default", "other"),
    types=("mail.send",),
    tenants=("", "t2"),
)


def row(world: World, name: str = "w1", **more: object) -> WorkerRow:
    told = {"who": WHO, "state": "running", **more}
    return WorkerRow(name, world.now + 15 * SECOND, **told)  # type: ignore[arg-type]


async def registered(world: World, *names: str, who: Who | None = WHO) -> None:
    rows = [row(world, name, who=who) for name in names]
    assert await world.store.beat(rows, now=world.now) == [True] * len(rows)


# --- who they are -------------------------------------------------------------------------------


async def test_a_row_says_who_it_is_and_when_it_was_heard_of(world: World) -> None:
    await registered(world, "w1")
    expected = replace(row(world), beat_at=world.now)
    assert list(await world.store.workers()) == [expected]


async def test_renewing_touches_the_beat_alone(world: World) -> None:
    await registered(world, "w1")
    world.clock.move(5 * SECOND)
    later = row(world, who=Who(supervisor="s2", embedded=True), state="stopping", renews=True)
    assert await world.store.beat([later], now=world.now) == [True]
    expected = WorkerRow("w1", later.alive_until, False, WHO, "stopping", world.now)
    assert list(await world.store.workers()) == [expected]


async def test_a_beat_that_comes_late_takes_nothing_back(world: World) -> None:
    await registered(world, "w1")
    late = row(world, state="late")
    world.clock.move(5 * SECOND)
    await registered(world, "w1")
    [before] = await world.store.workers()
    assert await world.store.beat([late], now=world.now - 1) == [True]
    assert list(await world.store.workers()) == [before]


async def test_a_clock_that_was_set_back_is_gone_by(world: World) -> None:
    await registered(world, "w1")
    world.clock.move(-120 * SECOND)
    await registered(world, "w1")
    [found] = await world.store.workers()
    assert (found.beat_at, found.alive_until) == (world.now, world.now + 15 * SECOND)


async def test_the_last_word_of_one_beat_counts(world: World) -> None:
    first, last = row(world, state="a"), row(world, state="b", who=None)
    assert await world.store.beat([first, last], now=world.now) == [True, True]
    [found] = await world.store.workers()
    assert (found.state, found.who) == ("b", None)


async def test_many_are_renewed_by_one_call(world: World) -> None:
    rows = [row(world, f"w{number:03}") for number in range(100)]
    assert await world.store.beat(rows, now=world.now) == [True] * 100
    world.clock.move(SECOND)
    await world.store.bury([Death("w042", "s1")], now=world.now)
    answers = await world.store.beat([replace(x, renews=True) for x in rows], now=world.now)
    assert [n for n, is_alive in enumerate(answers) if not is_alive] == [42]
    assert {one.beat_at for one in await world.store.workers()} == {world.now}


async def test_who_was_registered_and_is_not_known_any_more_stays_gone(world: World) -> None:
    fresh, known = row(world, "fresh"), row(world, "known", renews=True)
    assert await world.store.beat([known, fresh], now=world.now) == [False, True]
    assert [one.id for one in await world.store.workers()] == ["fresh"]


# --- how they are known to be gone ----------------------------------------------------------------


async def test_whoever_beats_for_it_buries_it_at_once(world: World) -> None:
    await registered(world, "w1")
    world.clock.move(SECOND)
    death = Death("w1", "s1", cause="sigkill_external", exit_code=-9)
    assert await world.store.bury([death], now=world.now) == [True]
    assert list(await world.store.workers()) == []
    [gone] = await world.store.workers(gone=True)
    assert (gone.lost, gone.ended_at, gone.death) == (True, world.now, death)
    assert gone.beat_at == world.now - SECOND
    assert await world.store.beat([row(world)], now=world.now) == [False]


async def test_who_names_the_very_process_is_believed_too(world: World) -> None:
    await registered(world, "w1")
    assert await world.store.bury([Death("w1", process=HERE)], now=world.now) == [True]


@pytest.mark.parametrize(
    "death",
    [
        Death("w1"),
        Death("w1", "s2"),
        Death("w1", process=replace(HERE, pid=4712)),
        Death("w1", process=replace(HERE, started_at=123_457)),
        Death("w1", process=replace(HERE, boot="boot-2")),
        Death("w1", process=replace(HERE, host="host-b")),
    ],
)
async def test_nobody_else_is_believed(world: World, death: Death) -> None:
    await registered(world, "w1")
    assert await world.store.bury([death], now=world.now) == [False]
    assert [one.id for one in await world.store.workers()] == ["w1"]


@pytest.mark.parametrize("who", [None, Who()])
async def test_nobody_knows_of_an_instance_that_did_not_say_who_it_is(
    world: World, who: Who | None
) -> None:
    await registered(world, "w1", who=who)
    assert await world.store.bury([Death("w1", "")], now=world.now) == [False]


async def test_the_first_word_about_an_end_counts(world: World) -> None:
    await registered(world, "w1", "w2")
    first, second = Death("w1", "s1", cause="oom"), Death("w1", "s1", cause="exit_code")
    assert await world.store.bury([first, second], now=world.now) == [True, True]
    assert await world.store.bury([second, Death("unheard-of")], now=world.now) == [True, True]
    [gone] = await world.store.workers(gone=True)
    assert gone.death == first


async def test_the_latest_end_is_told_first(world: World) -> None:
    await registered(world, "w1", "w2", "w3")
    for name in ("w2", "w1"):
        world.clock.move(SECOND)
        await world.store.bury([Death(name, "s1")], now=world.now)
    world.clock.move(HOUR)
    await world.store.declare_lost(["w3"], now=world.now)
    rows = await world.store.workers(gone=True)
    assert [one.id for one in rows] == ["w3", "w1", "w2"]
    assert (rows[0].ended_at, rows[0].death) == (world.now, None)
    assert [one.id for one in await world.store.workers(1, gone=True)] == ["w3"]


async def test_the_jobs_of_a_buried_instance_are_due_at_once_with_its_row(world: World) -> None:
    job = await world.claimed(holder="w0")
    await registered(world, "w1")
    await world.push(id="held")
    [held] = await world.claim(holder="w1")
    assert await world.due() == []
    death = Death("w1", "s1", exit_code=-11)
    await world.store.bury([death], now=world.now)
    [due] = await world.due()
    assert (due.stored.job.id, due.lease) == (held.job.id, j.Lease(due.lease.until, lost=True))  # type: ignore[union-attr]
    assert due.holder is not None
    assert (due.holder.death, due.holder.who) == (death, WHO)
    lost = world.make.ticking(due)
    await world.must(lost)
    assert (await world.got(job)).job.holder == "w0"


async def test_a_job_in_trusted_hands_is_due_without_a_row(world: World) -> None:
    job = await world.claimed()
    await world.rearm(job, world.now)
    [due] = await world.due()
    assert due.holder is None


# --- forgetting -----------------------------------------------------------------------------------


async def test_what_is_gone_is_forgotten_after_a_while(world: World) -> None:
    await registered(world, "w1", "w2", "w3")
    await world.store.bury([Death("w1", "s1")], now=world.now)
    world.clock.move(SECOND)
    await world.store.bury([Death("w2", "s1")], now=world.now)
    assert await world.store.forget_workers(before=world.now, now=world.now) == 1
    assert [one.id for one in await world.store.workers(gone=True)] == ["w2"]
    assert [one.id for one in await world.store.workers()] == ["w3"]
    assert await world.store.forget_workers(before=world.now + 1, now=world.now, limit=0) == 0
    assert await world.store.beat([row(world, renews=True)], now=world.now) == [False]


async def test_what_has_jobs_in_hands_is_not_forgotten(world: World) -> None:
    job = await world.claimed(holder="w1")
    await world.lose("w1")
    await world.lose("w2")
    assert await world.store.forget_workers(before=world.now + 1, now=world.now) == 1
    assert [one.id for one in await world.store.workers(gone=True)] == ["w1"]
    [due] = await world.due()
    assert due.stored.job.id == job.id
    await world.must(world.make.ticking(due))
    assert await world.store.forget_workers(before=world.now + 1, now=world.now) == 1


async def test_who_is_gone_without_an_end_in_its_history_is_not_forgotten(world: World) -> None:
    """Its row is all that says so: without it, it would be taken for alive."""
    events = whole("w1", world.now)
    await registered(world, "w1")
    await world.store.ship([life(events[:4])], now=world.now)
    await world.lose("w1")
    world.clock.move(HOUR)
    assert await world.store.forget_workers(before=world.now, now=world.now) == 0
    await world.store.ship([life(events, 4)], now=world.now)
    assert await world.store.forget_workers(before=world.now, now=world.now) == 1


async def test_a_late_report_is_refused_after_everything_was_forgotten(world: World) -> None:
    job = await world.claimed(holder="w1")
    await world.lose("w1")
    [due] = await world.due()
    await world.must(world.make.ticking(due))
    await world.store.forget_workers(before=world.now + 1, now=world.now)
    late = world.make.doing(job, j.Complete(lease=job.lease), WORKER, store={"lease": job.lease})
    [answer] = await world.commit(late)
    assert type(answer).__name__ == "Stale"
    want = world.make.want(1, holder="w1")
    assert (await world.store.step([], now=world.now, want=want)).claimed.lost


# --- what happened to them ------------------------------------------------------------------------


async def test_a_life_is_written_down_and_read_again(world: World) -> None:
    events = whole("i1", world.now)
    assert await world.store.ship([life(events)], now=world.now) == [True]
    [found] = await world.store.instances([("", "i1")])
    assert found == life(events).instance
    assert list(await world.store.history(("", "i1"))) == events
    assert await world.feed() == events


async def test_a_life_goes_on_where_it_was(world: World) -> None:
    events = whole("i1", world.now)
    first = life(events[:2])
    assert await world.store.ship([first], now=world.now) == [True]
    assert await world.store.ship([life(events, 2)], now=world.now) == [True]
    assert list(await world.store.history(("", "i1"))) == events


@pytest.mark.parametrize("version", [0, 1, 3])
async def test_what_goes_on_from_another_version_is_not_taken(world: World, version: int) -> None:
    events = whole("i1", world.now)
    await world.store.ship([life(events[:2])], now=world.now)
    other = whole("i2", world.now)
    answers = await world.store.ship([life(events, version), life(other)], now=world.now)
    assert answers == [False, True]
    assert list(await world.store.history(("", "i1"))) == events[:2]


async def test_the_name_of_another_record_is_not_taken(world: World) -> None:
    job = await world.push(id="x")
    assert await world.store.ship([life(whole("x", world.now))], now=world.now) == [False]
    assert len(await world.store.history(("", "x"))) == job.version
    assert await world.store.instances([("", "x"), ("", "\0")]) == [None, None]


async def test_what_no_worker_can_have_lived_is_refused(world: World) -> None:
    events = whole("i1", world.now)
    fine = life(events)
    wrong = [
        replace(fine, events=()),
        replace(fine, events=tuple(events[1:])),
        replace(fine, version=1),
        replace(fine, events=(replace(events[0], kind="job"), *events[1:])),
        replace(fine, events=(events[0], replace(events[1], record="i2"), *events[2:])),
        replace(fine, events=(events[0], replace(events[1], name="finish"), *events[2:])),
    ]
    for one in wrong:
        with pytest.raises(BadHistory):
            await world.store.ship([one], now=world.now)
    with pytest.raises(BadHistory):
        await world.store.ship([life(events[:1]), life(events)], now=world.now)
    with pytest.raises(BadName):
        await world.store.ship([life(whole("\0", world.now))], now=world.now)


async def test_instances_are_found_by_slot_page_by_page(world: World) -> None:
    lives = [
        life(list(born(name, world.now, slot=slot, tenant=tenant).events))
        for name, slot, tenant in [("b", "x", ""), ("a", "y", ""), ("c", "x", ""), ("a", "x", "t")]
    ]
    await world.store.ship(lives, now=world.now)
    find = world.store.find_instances

    def keys(found: object) -> list[tuple[str, str]]:
        return [(one.tenant, one.id) for one in found]  # type: ignore[attr-defined]

    assert keys(await find()) == [("", "a"), ("", "b"), ("", "c"), ("t", "a")]
    assert keys(await find(slot="x")) == [("", "b"), ("", "c"), ("t", "a")]
    assert keys(await find("x", ("", "b"))) == [("", "c"), ("t", "a")]
    assert keys(await find("t")) == []
    assert keys(await find(after=("", "a"), limit=2)) == [("", "b"), ("", "c")]
    assert keys(await find("\0")) == []


async def test_a_life_is_forgotten_when_it_has_ended_and_is_sealed(world: World) -> None:
    await world.store.ship([life(whole("old", world.now))], now=world.now)
    await world.store.ship([life(list(born("alive", world.now).events))], now=world.now)
    world.clock.move(HOUR)
    assert await world.store.forget_workers(before=world.now, now=world.now) == 0
    while await world.store.seal(limit=3):
        pass
    await world.store.ship([life(whole("young", world.now))], now=world.now)
    assert await world.store.forget_workers(before=world.now, now=world.now) == 1
    assert [one.id for one in await world.store.find_instances()] == ["alive", "young"]
    assert list(await world.store.history(("", "old"))) == []
    # Nothing of it is left: even its name may be used again.
    assert await world.store.ship([life(whole("old", world.now))], now=world.now) == [True]
    again = [fed.event.record for fed in await world.store.feed()]
    assert again == ["alive", *["young"] * 5, *["old"] * 5]


async def test_retention_of_jobs_leaves_workers_alone(world: World) -> None:
    await world.store.ship([life(whole("i1", world.now))], now=world.now)
    while await world.store.seal():
        pass
    world.clock.move(HOUR)
    assert await world.prune(Retention("completed", world.now)) == 0
    assert len(await world.store.history(("", "i1"))) == 5
