"""What no store holds, whoever asks for it, and what every store holds to the last bit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.event import Event
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.stores.api import Body, Committed, Failure, Line, Move, Rejected, Unit, key_of
from tests.contract.making import SYSTEM, USER, WORKER, forged
from tests.contract.world import World

MAX = 2**63 - 1


async def refuses(world: World, unit: Unit) -> None:
    """The unit is rejected and leaves nothing behind; its neighbour is not hurt."""
    before = (await world.everything(), await world.feed(), await world.store.log_tail())
    neighbour = world.make.pushed(id="neighbour")
    first, second = await world.commit(unit, neighbour)
    assert isinstance(first, Rejected), first
    assert first.why
    assert second == Committed()
    records = await world.everything()
    del records["", "neighbour"]
    feed = (await world.feed())[:-1]
    assert (records, feed, await world.store.log_tail()) == before


def with_events(move: Move, *events: Event) -> Unit:
    """A unit of this move with other events, at the version they would lead to."""
    job = replace(move.job, version=move.version + len(events))
    return Unit(events[0].command_id, moves=(replace(move, job=job, events=events),))


# --- histories ------------------------------------------------------------------------------------


async def test_a_second_end_of_one_record_is_impossible(world: World) -> None:
    job = await world.do(await world.push(), j.Cancel(), USER)
    await world.push(id="other")
    [end] = [event for event in await world.store.history(key_of(job)) if event.target == job.state]
    again = replace(end, version=job.version + 1, command_id="again", source="available")
    await refuses(world, with_events(Move(job.version, job), again))


async def test_two_ends_in_one_unit_are_impossible(world: World) -> None:
    job = await world.push()
    move = world.make.move(job, j.Cancel(), USER)
    [end] = move.events
    await refuses(world, with_events(move, end, replace(end, version=3)))


async def test_an_amendment_of_an_ended_record_is_no_second_end(world: World) -> None:
    job = await world.do(await world.push(), j.Cancel(), USER)
    job = await world.do(job, j.Annotate("d"), USER)
    await world.do(job, j.Erase(), USER)


@pytest.mark.parametrize("version", [1, 3, 7])
async def test_events_go_on_where_the_record_stands(world: World, version: int) -> None:
    job = await world.push()
    move = world.make.move(job, j.Hold(), USER)
    [event] = move.events
    await refuses(world, with_events(move, replace(event, version=version)))


async def test_events_have_no_gap_between_them(world: World) -> None:
    job = await world.push()
    move = world.make.move(job, j.Hold(), USER)
    [event] = move.events
    await refuses(world, with_events(move, event, replace(event, version=4)))


@pytest.mark.parametrize(
    ("source", "name", "target"),
    [
        ("available", "claim", "completed"),
        ("available", "made_up", "active"),
        ("available", "claim", None),
        ("nowhere", "claim", "active"),
        ("completed", "due", "available"),
    ],
)
async def test_only_declared_moves_are_stored(
    world: World, source: str, name: str, target: str | None
) -> None:
    job = await world.push()
    move = world.make.move(job, j.Hold(), USER)
    [event] = move.events
    await refuses(world, with_events(move, replace(event, source=source, name=name, target=target)))


async def test_a_new_record_starts_at_version_one(world: World) -> None:
    new = world.make.new()
    late = replace(new.events[0], version=2)
    job = replace(new.job, version=2)
    await refuses(world, world.make.inserting(replace(new, job=job, events=(late,))))


async def test_a_new_record_has_a_history(world: World) -> None:
    await refuses(world, Unit("c", new=(replace(world.make.new(), events=()),)))


async def test_a_record_has_the_version_of_its_history(world: World) -> None:
    job = await world.push()
    move = world.make.move(job, j.Hold(), USER)
    ahead = replace(move, job=replace(move.job, version=9))
    await refuses(world, world.make.moving(ahead))


async def test_a_record_stands_in_a_unit_once(world: World) -> None:
    job = await world.push()
    command = world.make.command_id()
    wishes: list[j.Command] = [j.Hold(), j.Reprioritise(3)]
    moves = [world.make.move(job, wish, USER, command_id=command) for wish in wishes]
    await refuses(world, world.make.moving(*moves))


async def test_every_triple_that_a_job_can_live_through_is_accepted(world: World) -> None:
    """A few whole lives, so that a constraint that forbids too much shows here."""
    job = await world.claimed(id="a")
    job = await world.do(job, j.Cancel(), USER)
    job = await world.do(job, j.SeeCancel(lease=job.lease), WORKER)
    job = await world.do(job, j.Interrupt(lease=job.lease), WORKER)
    await world.do(job, j.ConfirmCancel(lease=job.lease), WORKER)
    offered = await world.push(profile="engine")
    offered = await world.do(offered, j.Dispatch("L", "e", True), SYSTEM)
    offered = await world.do(offered, j.Receive(lease="L", start_us=5), WORKER)
    offered = await world.do(offered, j.Acknowledge(lease="L"), WORKER)
    await world.do(offered, j.Complete(lease="L", digest="d"), WORKER)


# --- texts ----------------------------------------------------------------------------------------

TEXTS = [
    '{"b":1,"a":2,"a":3}',
    "  [1,  2 ]\n",
    '{"n":123456789012345678901234567890.000000000000000000001e400}',
    '["\\u0000\\ud800", "\\/"]',
    '["äöü €", "日本語", "👩‍👩‍👧", "e\u0301", "\u202e", "\ufeff", "\uffff"]',
    '["\x7f\r\n\t\x01"]',
    "",
    "not json at all",
    '["' + "x" * 300_000 + '"]',
]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
async def test_texts_come_out_byte_for_byte_as_they_went_in(world: World, text: str) -> None:
    body = Body(text, text, text, (text, text), schema=text)
    job = await world.claimed(body=body)
    failure = Failure(1, world.now, text, text, text, text, text)
    told = {"result": text, "failure": failure, "lines": (Line(world.now, text, text),)}
    await world.do(job, j.Complete(lease=job.lease), WORKER, store=told)
    stored = await world.got(job)
    assert (stored.body, stored.result, stored.failures) == (body, text, (failure,))
    [logged] = await world.store.logs(key_of(job))
    assert logged.line == Line(world.now, text, text)


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x\udfff"])
@pytest.mark.parametrize("field", ["payload", "meta", "type"])
async def test_what_is_no_text_is_rejected(world: World, field: str, text: str) -> None:
    body = replace(Body("t"), **{field: text})
    await refuses(world, world.make.pushed(body=body))


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
async def test_a_result_or_a_line_that_is_no_text_is_rejected(world: World, text: str) -> None:
    job = await world.claimed()
    report = j.Complete(lease=job.lease)
    for told in ({"result": text}, {"lines": (Line(1, text),)}):
        move = replace(world.make.move(job, report, WORKER), **told)
        first = (await world.commit(world.make.moving(move)))[0]
        assert isinstance(first, Rejected)
    assert (await world.got(job)).job == job


async def test_a_body_is_kept_whole(world: World) -> None:
    policy = RetryPolicy(max_attempts=7)
    body = Body("t", '{"a":[]}', '{"m":1}', ("x", "y", "x"), policy, "urn:s")
    job = await world.push(body=body)
    assert (await world.got(job)).body == body
    bare = await world.push(body=Body("t"))
    assert (await world.got(bare)).body == Body("t")


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [-MAX - 1, -1, 0, 1, MAX])
async def test_numbers_of_64_bits_are_kept_exactly(world: World, number: int) -> None:
    new = forged(world.make.new(), priority=number, allowed=max(number, 1))
    await world.must(world.make.inserting(new))
    await world.rearm(new.job, number)
    stored = await world.got(new.job)
    assert (stored.job, stored.wake_at) == (new.job, number)
    assert (stored.job.priority, stored.job.allowed) == (number, max(number, 1))


async def test_extreme_priorities_are_claimed_in_order(world: World) -> None:
    for priority in (0, -MAX - 1, MAX, -1, 1):
        await world.must(world.make.inserting(forged(world.make.new(), priority=priority)))
    taken = [one.job.priority for one in await world.claim(9)]
    assert taken == [MAX, 1, 0, -1, -MAX - 1]


@pytest.mark.parametrize("number", [MAX + 1, -MAX - 2, 10**30])
async def test_numbers_beyond_64_bits_are_rejected(world: World, number: int) -> None:
    await refuses(world, world.make.inserting(forged(world.make.new(), priority=number)))


async def test_a_record_is_kept_field_by_field(world: World) -> None:
    await world.make_flow("flow", w.chain("s"), draft=True)
    job = await world.push(
        id="a",
        queue="q",
        priority=-2,
        expires_at=world.now + 99,
        run_at=world.now + 9,
        held=True,
        rerun_of="old",
        reason="it was lost",
        workflow="flow",
        step="s",
        allowed=7,
        losses_allowed=5,
        deadlines=Deadlines(1, 2, 3),
    )
    stored = await world.got(job)
    for field in j.Job.__struct_fields__:
        assert getattr(stored.job, field) == getattr(job, field), field
    assert type(stored.job.state) is type(job.state)
    assert type(stored.job.delivery) is type(job.delivery)
