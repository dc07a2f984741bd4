"""The side that only looks: records, pages, counts, histories, logs, and who waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import (
    Body,
    Counted,
    Failure,
    Glancing,
    Key,
    Line,
    Note,
    Rejected,
    key_of,
)
from detent.stores.select import FIRST_PAGE, Filter, Only, Page
from detent.stores.shapes import head_of
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import World

# --- records --------------------------------------------------------------------------------------


async def test_records_are_answered_in_the_order_of_the_keys(world: World) -> None:
    one, two = await world.push(), await world.push()
    keys = [key_of(two), ("", "none"), key_of(one), key_of(two)]
    found = await world.store.get(keys)
    assert [stored and stored.job for stored in found] == [two, None, one, two]
    assert list(await world.store.get([])) == []


async def test_heads_are_records_without_what_may_be_large(world: World) -> None:
    store = world.store
    for _ in range(2):
        await world.push(body=Body("a", '["large"]', '{"m":"large"}', ("x",), key="k"))
    done, failed = [stored.job for stored in await world.claim(2)]
    note = Note(world.now, 1, 50, "half")
    await store.note([(key_of(done), done.lease or "", note)], now=world.now)
    saved = {"lease": done.lease, "checkpoint": '"large"'}
    done = await world.do(done, j.Checkpoint(lease=done.lease, digest="d"), WORKER, store=saved)
    await world.complete(done, result='"large"')
    failure = Failure(1, world.now, "boom", "it broke", "t", '{"a":"large"}', "large")
    told = {"lease": failed.lease, "failure": failure}
    await world.do(failed, j.Fail(lease=failed.lease, code="boom"), WORKER, store=told)
    keys = [key_of(failed), ("", "none"), key_of(done), key_of(failed), ("t", "nul \0")]
    heads = list(await store.heads(keys))
    assert heads == [one and head_of(one) for one in await store.get(keys)]
    assert heads[0] is not None
    assert heads[0].failures == (replace(failure, details=None, backtrace=None),)
    assert "large" not in repr(heads)
    assert list(await store.heads([])) == []


async def test_runs_that_need_a_look_are_seen_at_a_glance(world: World) -> None:
    store = world.store
    if not isinstance(store, Glancing):
        pytest.skip("it reads all of them")
    for _ in range(5):
        await world.push()
    runs = [stored.job for stored in await world.claim(4)]
    held = [(key_of(job), job.lease or "") for job in runs]
    assert list(await store.unquiet(held)) == []
    await world.do(runs[1], j.Cancel(), USER)
    await world.complete(runs[2])
    [again] = await world.claim(1)
    held += [(key_of(again.job), "another"), (("", "none"), "any"), (("t", runs[0].id), held[0][1])]
    assert list(await store.unquiet(held)) == [key for key, _ in (*held[1:3], *held[4:])]
    assert list(await store.unquiet([])) == []


async def test_jobs_are_found_newest_first(world: World) -> None:
    for name in ["b", "d", "a", "c"]:
        await world.push(id=name)
    found = await world.store.find(Filter())
    assert [stored.job.id for stored in found] == ["d", "c", "b", "a"]
    assert found[0] == (await world.store.get([("", "d")]))[0]


async def test_pages_follow_each_other_without_gap_or_overlap(world: World) -> None:
    for number in range(10):
        await world.push(id=f"j{number}")
    seen: list[Key] = []
    for size in (3, 3, 3, 1, 0):
        page = await world.store.find(Filter(), Page(3, seen[-1] if seen else None))
        assert len(page) == size
        seen += [key_of(stored.job) for stored in page]
    assert seen == [("", f"j{number}") for number in reversed(range(10))]
    assert list(await world.store.find(Filter(), Page(0))) == []


@pytest.mark.parametrize("size", [1, 2, 3, 4])
async def test_pages_may_end_between_tenants_that_use_the_same_id(world: World, size: int) -> None:
    for name, tenant in product("ab", ["", "t", "u"]):
        await world.push(id=name, tenant=tenant)
    seen: list[Key] = []
    while page := await world.store.find(Filter(), Page(size, seen[-1] if seen else None)):
        seen += [key_of(stored.job) for stored in page]
    assert seen == [(tenant, name) for name in "ba" for tenant in ("u", "t", "")]


@pytest.mark.parametrize("name", ["half \ud800", "nul \0"])
async def test_a_name_that_no_store_can_hold_is_the_name_of_nothing(
    world: World, name: str
) -> None:
    store = world.store
    job = await world.push()
    assert list(await store.get([("", name), key_of(job), (name, "x")])) == [
        None,
        await world.got(job),
        None,
    ]
    for key in (("", name), (name, job.id)):
        assert list(await store.history(key)) == []
        assert list(await store.logs(key)) == []
        assert list(await store.find(Filter(), Page(9, key))) == []
        assert list(await store.append_logs([(key, Line(1, "x"))])) == [0]
    for field in ("tenant", "queue", "state", "type", "profile"):
        assert list(await store.find(replace(Filter(), **{field: name}))) == []
    assert list(await store.held_by(name, 9)) == []
    assert list(await store.counts(name)) == []
    assert list(await store.extend([(name, world.now)], now=world.now)) == [False]
    assert list(await store.append_logs([(key_of(job), Line(1, name))])) == [0]


@pytest.mark.parametrize("name", ["half \ud800", "nul \0"])
async def test_a_wish_that_no_store_can_hold_is_granted_nothing(world: World, name: str) -> None:
    await world.push()
    wishes: list[dict[str, Any]] = [
        {"queues": (name,)},
        {"queues": ("default", name)},
        {"leases": (name,)},
        {"tenant": name},
        {"types": (name,)},
        {"profiles": (name,)},
        {"holder": name, "wire": True},
    ]
    for wish in wishes:
        assert await world.claim(**wish) == []
    assert len(await world.claim()) == 1


async def test_a_large_and_awkward_payload_comes_out_as_it_went_in(world: World) -> None:
    """A megabyte of every character that some layer might want to mend."""
    awkward = (
        r"\ud83d\ude00 \ud800 \u0000 \/ \u2028" + "\u2028\u2029\x7f\x85\ufeff\uffff 😀 é e\u0301"
    )
    nested = "[" * 400 + '{"a" : 1.0e+2, "a":-0}' + "]" * 400
    piece = f'"{awkward}",\r\n\t {nested},'
    payload = f"[{piece * (1_000_000 // len(piece.encode()) + 1)} 12345678901234567890]"
    assert len(payload.encode()) > 1_000_000
    body = Body("mail.send", payload, f'{{"x": "{awkward}"}}')
    job = await world.push(body=body)
    assert (await world.got(job)).body == body
    [found] = await world.store.find(Filter())
    [taken] = await world.claim()
    assert found.body == taken.body == body
    done = {"result": payload}
    await world.do(taken.job, j.Complete(lease=taken.job.lease), WORKER, store=done)
    assert (await world.got(job)).result == payload


async def test_a_filter_holds_all_its_conditions_together(world: World) -> None:
    await world.push(id="a", queue="q", body=Body("x"), tenant="t")
    await world.push(id="b", queue="q", body=Body("y"), tenant="t")
    held = await world.push(id="c", queue="q", body=Body("x"), profile="ojs")
    await world.do(held, j.Cancel(), USER)

    async def found(chosen: Filter) -> str:
        return "".join(stored.job.id for stored in await world.store.find(chosen))

    assert await found(Filter(tenant="t")) == "ba"
    assert await found(Filter(tenant="")) == "c"
    assert await found(Filter(queue="q", type="x")) == "ca"
    assert await found(Filter(state="cancelled")) == "c"
    assert await found(Filter(profile="python", type="y")) == "b"
    assert await found(Filter(tenant="t", queue="q", state="available", type="x")) == "a"
    assert await found(Filter(queue="none")) == ""


async def test_pages_go_through_equal_ids_of_many_tenants(world: World) -> None:
    keys = [(tenant, name) for tenant in ("", "t", "a", "ä") for name in ("x", "y")]
    for tenant, name in keys:
        await world.push(tenant=tenant, id=name)
    seen: list[tuple[str, str]] = []
    for _ in range(4):
        page = await world.store.find(Filter(), Page(3, seen[-1] if seen else None))
        seen += [key_of(stored.job) for stored in page]
    assert seen == sorted(keys, key=lambda key: key[::-1], reverse=True)


async def test_a_page_may_begin_after_a_job_that_is_not_there(world: World) -> None:
    for tenant, name in [("", "a"), ("t", "c"), ("", "c"), ("", "e")]:
        await world.push(tenant=tenant, id=name)
    found = await world.store.find(Filter(), Page(9, ("s", "c")))
    assert [key_of(one.job) for one in found] == [("", "c"), ("", "a")]
    found = await world.store.find(Filter(), Page(9, ("zzz", "d")))
    assert [key_of(one.job) for one in found] == [("t", "c"), ("", "c"), ("", "a")]
    assert list(await world.store.find(Filter(), Page(9, ("", "")))) == []


async def test_jobs_are_found_by_key_tag_workflow_and_step(world: World) -> None:
    await world.push(id="a", body=Body("x", key="k", tags=("red", "blue")))
    await world.push(id="b", body=Body("x", key="K", tags=("blue", "re")))
    await world.push(id="c", body=Body("x", tags=("",)))
    new = [
        world.make.new(id=name, workflow="w", step=step, body=Body("x", key="k", tags=("red",)))
        for name, step in [("d", "s"), ("e", "s"), ("f", "t")]
    ]
    await world.make_flow("w", w.group("s", "t"), *new)

    async def found(**chosen: Any) -> str:
        return "".join(stored.job.id for stored in await world.store.find(Filter(**chosen)))

    assert await found(key="k") == "feda"
    assert await found(key="") == ""
    assert await found(tag="blue") == "ba"
    assert await found(tag="red") == "feda"
    assert await found(tag="") == "c"
    assert await found(tag="red,blue") == ""
    assert await found(workflow="w") == "fed"
    assert await found(workflow="w", step="s", key="k", tag="red") == "ed"
    assert await found(step="t") == "f"
    assert await found(workflow="s") == ""
    assert await found(workflow="w", tenant="t2") == ""


async def test_jobs_are_found_by_whether_they_are_held(world: World) -> None:
    jobs = [await world.push(id=name) for name in "abcd"]
    for job in jobs[1:]:
        await world.do(job, j.Hold(), USER)
    [_, _, third, _] = await world.store.get([("", name) for name in "abcd"])
    assert third is not None
    await world.do(third.job, j.Cancel(), USER)

    async def found(**chosen: Any) -> list[str]:
        some = await world.store.find(Filter(tenant="", **chosen))
        return [one.job.id for one in some]

    assert await found(held=True, state="available") == ["d", "b"]
    assert await found(held=False) == ["a"]
    assert await found(held=True) == ["d", "c", "b"]
    assert await found(held=True, queue="other", state="available") == []


async def test_what_is_ready_is_told_from_what_is_merely_available(world: World) -> None:
    await world.claimed(id="e")
    await world.push(id="a", body=Body("x", key="k"))
    await world.push(id="b")
    await world.do(await world.push(id="c"), j.Hold(), USER)
    await world.push(id="d", run_at=world.now + SECOND)
    steps = {"f": "one", "g": "two"}
    members = [world.make.new(id=k, workflow="w", step=v) for k, v in steps.items()]
    await world.make_flow("w", w.chain("one", "two"), *members)
    await world.push(id="h", tenant="t")
    found = await world.store.find(Filter(tenant="", only=Only.READY))
    assert [one.job.id for one in found] == ["f", "b", "a"]
    keyed = await world.store.find(Filter(tenant="", key="k", queue="default", only=Only.READY))
    assert [one.job.id for one in keyed] == ["a"]
    page = await world.store.find(Filter(only=Only.READY), Page(2, ("", "f")))
    assert [one.job.id for one in page] == ["b", "a"]
    assert list(await world.store.find(Filter(queue="other", only=Only.READY))) == []


async def test_a_key_without_a_character_is_none(world: World) -> None:
    [outcome] = await world.commit(world.make.pushed(body=Body("x", key="")))
    assert isinstance(outcome, Rejected)


async def test_filters_and_pages_go_together(world: World) -> None:
    for number in range(12):
        tags = ("odd",) if number % 2 else ("even", "odd" * (number % 3 == 0))
        await world.push(id=f"j{number:02}", body=Body("x", key=f"k{number % 3}", tags=tags))
    seen: list[str] = []
    for _ in range(9):
        after = ("", seen[-1]) if seen else None
        page = await world.store.find(Filter(tag="odd", key="k0"), Page(1, after))
        seen += [stored.job.id for stored in page]
    assert seen == ["j09", "j06", "j03", "j00"]


async def test_workflows_are_found_newest_first_by_tenant_and_state(world: World) -> None:
    for tenant, name in [("", "a"), ("t", "c"), ("", "c"), ("t", "b")]:
        await world.make_flow(name, w.stages(f"{name}-s"), tenant=tenant)
    draft = await world.make_flow("d", w.stages("d-s"), draft=True)
    await world.must(world.make.flowing(await world.flow("a"), w.Abort()))

    async def found(
        tenant: str | None, state: str | None, page: Page = FIRST_PAGE
    ) -> list[tuple[str, str]]:
        return [key_of(one) for one in await world.store.find_workflows(tenant, state, page)]

    assert await found(None, None) == [("", "d"), ("t", "c"), ("", "c"), ("t", "b"), ("", "a")]
    assert await found("t", None) == [("t", "c"), ("t", "b")]
    assert await found(None, "aborted") == [("", "a")]
    assert await found("t", "created") == []
    assert await found(None, "created") == [key_of(draft.workflow)]
    assert await found(None, None, Page(2)) == [("", "d"), ("t", "c")]
    assert await found(None, None, Page(2, ("t", "c"))) == [("", "c"), ("t", "b")]
    assert await found(None, "pending", Page(9, ("", "c"))) == [("t", "b")]
    assert await found(None, None, Page(0)) == []


async def test_workflows_are_answered_in_the_order_of_the_keys(world: World) -> None:
    one = await world.make_flow("one", w.stages("a", "b"))
    two = await world.make_flow("two", w.stages("c"), tenant="t")
    keys = [("t", "two"), ("", "two"), ("", "one"), ("", "a")]
    assert list(await world.store.flows(keys)) == [two, None, one, None]
    assert list(await world.store.flows([])) == []


async def test_what_a_holder_has_in_its_hands_is_found(world: World) -> None:
    for _ in range(4):
        await world.push()
    mine, others = await world.claim(3), await world.claim(1, holder="w2")
    held = {stored.job.id for stored in await world.store.held_by("w1", 99)}
    assert held == {stored.job.id for stored in mine}
    assert [one.job for one in await world.store.held_by("w2", 99)] == [others[0].job]
    assert len(await world.store.held_by("w1", 2)) == 2
    [first, *rest] = [stored.job.lease or "" for stored in mine]
    but = [first, "another's", others[0].job.lease or ""]
    assert {one.job.lease for one in await world.store.held_by("w1", 99, but)} == {*rest}
    done = mine[0].job
    await world.do(done, j.Complete(lease=done.lease), WORKER)
    assert len(await world.store.held_by("w1", 99)) == 2
    assert list(await world.store.held_by("nobody", 99)) == []


async def test_every_key_is_listed_once(world: World) -> None:
    pushed = {key_of(await world.push(tenant=tenant)) for tenant in ("", "t", "u") for _ in "abc"}
    assert set(await world.everything()) == pushed


# --- counts ---------------------------------------------------------------------------------------


async def test_counts_follow_every_move(world: World) -> None:
    async def counted() -> dict[tuple[str, str], int]:
        return {(one.queue, one.state): one.count for one in await world.store.counts()}

    assert await counted() == {}
    jobs = [await world.push(queue=queue) for queue in ("a", "a", "b")]
    assert await counted() == {("a", "available"): 2, ("b", "available"): 1}
    await world.do(jobs[0], j.Move("b"), USER)
    assert await counted() == {("a", "available"): 1, ("b", "available"): 2}
    [taken] = await world.claim(queues=("a",))
    assert await counted() == {("a", "active"): 1, ("b", "available"): 2}
    await world.do(taken.job, j.Complete(lease=taken.job.lease), WORKER)
    assert await counted() == {("a", "completed"): 1, ("b", "available"): 2}


async def test_the_payloads_of_live_jobs_weigh(world: World) -> None:
    assert await world.store.weight("", "default") == 0
    first = await world.push(body=Body("a", '["\u00e9"]'))
    await world.push(body=Body("a", "[1]", meta='{"k": 1}'))
    await world.push(body=Body("a", "[12]"), tenant="t")
    await world.push(body=Body("a", "[12]"), queue="other")
    assert await world.store.weight("", "default") == len('["\u00e9"]'.encode()) + 3
    await world.do(first, j.Cancel(), USER)
    assert await world.store.weight("", "default") == 3
    assert await world.store.weight("half \ud800", "nul \0") == 0


async def test_counts_can_be_asked_for_one_tenant(world: World) -> None:
    await world.push(tenant="t")
    await world.push(tenant="u")
    assert list(await world.store.counts("t")) == [Counted("t", "default", "available", 1)]
    assert list(await world.store.counts("nobody")) == []
    assert len(await world.store.counts()) == 2


async def test_refused_units_count_nothing(world: World) -> None:
    job = await world.push()
    late = world.make.doing(job, j.Cancel(), USER)
    await world.do(job, j.Hold(), USER)
    await world.commit(late, world.make.pushed(id=job.id))
    assert list(await world.store.counts()) == [Counted("", "default", "available", 1)]


# --- histories ------------------------------------------------------------------------------------


async def test_a_history_is_every_event_of_the_record_oldest_first(world: World) -> None:
    unit = world.make.pushed()
    await world.must(unit)
    job = unit.new[0].job
    held = world.make.doing(job, j.Hold(), USER, reason="because")
    await world.must(held)
    events = [*unit.new[0].events, *held.moves[0].events]
    assert list(await world.store.history(key_of(job))) == events
    assert list(await world.store.history(("", "nobody"))) == []


async def test_an_event_comes_out_as_it_went_in_field_by_field(world: World) -> None:
    unit = world.make.pushed(
        run_at=world.now + 1, rerun_of="x", reason="why not", expires_at=world.now + 99
    )
    await world.must(unit)
    [given], [got] = unit.new[0].events, await world.store.history(key_of(unit.new[0].job))
    for field in type(given).__struct_fields__:
        assert getattr(got, field) == getattr(given, field), field
    assert type(got.actor) is type(given.actor)


async def test_many_histories_are_read_at_once_each_event_where_the_feed_has_it(
    world: World,
) -> None:
    one, two = await world.push(), await world.push()
    await world.do(one, j.Hold(), USER)
    keys = [key_of(two), ("", "none"), key_of(one), key_of(two)]
    found = await world.store.histories(keys)
    feed = list(await world.store.feed())
    assert [list(life) for life in found] == [[feed[1]], [], [feed[0], feed[2]], [feed[1]]]
    assert [fed.event for fed in found[2]] == list(await world.store.history(key_of(one)))
    assert list(await world.store.histories([])) == []


async def test_a_wire_lease_has_a_row_from_its_claim_to_its_end(world: World) -> None:
    job = await world.claimed(wire=True, lease_us=9 * SECOND)
    own = await world.claimed()
    assert job.lease is not None
    assert own.lease is not None
    asked = [own.lease, job.lease, "never"]
    assert list(await world.store.leases(asked)) == [None, j.Lease(world.now + 9 * SECOND), None]
    await world.store.extend([(job.lease, world.now + 99)], now=world.now)
    assert list(await world.store.leases([job.lease])) == [j.Lease(world.now + 99)]
    await world.do(job, j.Complete(lease=job.lease), WORKER)
    assert list(await world.store.leases(asked)) == [None] * 3


# --- logs -----------------------------------------------------------------------------------------


async def test_lines_get_cursors_per_job_and_unknown_jobs_get_none(world: World) -> None:
    one, two = await world.push(), await world.push()
    lines = [
        (key_of(one), Line(1, "a")),
        (("", "nobody"), Line(2, "b")),
        (key_of(two), Line(3, "c", "error")),
        (key_of(one), Line(4, "d")),
    ]
    assert list(await world.store.append_logs(lines)) == [1, 0, 1, 2]
    logged = await world.store.logs(key_of(one))
    assert [(x.key, x.cursor, x.line) for x in logged] == [
        (key_of(one), 1, Line(1, "a")),
        (key_of(one), 2, Line(4, "d")),
    ]
    assert [x.line.text for x in await world.store.log_tail()] == ["a", "c", "d"]


async def test_logs_can_be_read_on_from_a_cursor(world: World) -> None:
    job = await world.push()
    await world.store.append_logs([(key_of(job), Line(n, str(n))) for n in range(1, 8)])
    page = await world.store.logs(key_of(job), 3, 2)
    assert [(x.cursor, x.line.text) for x in page] == [(4, "4"), (5, "5")]
    assert list(await world.store.logs(key_of(job), 7)) == []
    assert list(await world.store.logs(("", "nobody"))) == []


async def test_the_tail_can_be_read_on_from_a_position(world: World) -> None:
    jobs = [await world.push() for _ in range(3)]
    await world.store.append_logs([(key_of(jobs[n % 3]), Line(n, str(n))) for n in range(9)])
    seen, after = [], 0
    for _ in range(5):
        page = await world.store.log_tail(after, 2)
        seen += [one.line.text for one in page]
        after = page[-1].pos
    assert seen == [str(n) for n in range(9)]


async def test_cursors_have_no_gaps_whoever_writes_at_the_same_time(world: World) -> None:
    one, two = await world.push(), await world.push()
    batches = [[(key_of(one), Line(n, "x")), (key_of(two), Line(n, "y"))] for n in range(30)]
    cursors = await asyncio.gather(*(world.store.append_logs(batch) for batch in batches))
    for position in (0, 1):
        assert sorted(some[position] for some in cursors) == list(range(1, 31))


async def test_lines_of_a_move_are_written_with_it_and_after_earlier_ones(world: World) -> None:
    job = await world.claimed()
    await world.store.append_logs([(key_of(job), Line(1, "first"))])
    told = {"lines": (Line(2, "second"), Line(3, "third"))}
    await world.do(job, j.Complete(lease=job.lease), WORKER, store=told)
    assert [x.line.text for x in await world.store.logs(key_of(job))] == [
        "first",
        "second",
        "third",
    ]


async def test_lines_of_a_refused_move_are_not_written(world: World) -> None:
    job = await world.push()
    await world.do(job, j.Reprioritise(1), USER)
    late = world.make.doing(job, j.Hold(), USER, store={"lines": (Line(1, "never"),)})
    await world.commit(late)
    await world.store.append_logs([(key_of(job), Line(2, "only"))])
    assert [(x.cursor, x.line.text) for x in await world.store.logs(key_of(job))] == [(1, "only")]


# --- waiting --------------------------------------------------------------------------------------


async def test_who_waits_in_vain_is_told_so(world: World) -> None:
    assert await world.store.wait(0.01) is False


async def woken_by(world: World, change: Awaitable[object]) -> bool:
    """Whether that change ends a wait that had begun before it, after a claim in vain."""
    await world.claim(0)
    waiting = asyncio.ensure_future(world.store.wait(30.0))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    await change
    return await waiting


async def looked(world: World, **more: Any) -> int:
    """How much was heard of before a claim looked."""
    await world.alive("w1")
    stepped = await world.store.step([], now=world.now, want=world.make.want(**more))
    assert stepped.claimed.jobs == ()
    return stepped.claimed.seen


async def test_what_came_between_a_claim_and_a_wait_is_not_slept_through(world: World) -> None:
    seen = await looked(world)
    await world.push()
    assert await world.store.wait(30.0, seen)


async def test_what_one_claimer_has_looked_at_is_still_news_to_another(world: World) -> None:
    seen = await looked(world)
    await world.push(body=Body("x"))
    of_another = await looked(world, types=("y",))
    assert await world.store.wait(30.0, seen)
    assert await world.store.wait(0.01, of_another) is False


async def test_without_a_count_only_what_comes_after_the_call_is_waited_for(world: World) -> None:
    await world.push()
    assert await world.store.wait(0.01) is False


async def rests(world: World, seen: int) -> bool:
    """Whether a wait ends in vain sooner or later; one may be woken for nothing, not for ever."""
    for _ in range(50):
        if not await world.store.wait(0.01, seen):
            return True
        seen = (await world.wish(2)).seen
    return False


async def test_who_has_seen_all_there_was_waits_for_what_comes(world: World) -> None:
    await world.push()
    claimed = await world.wish(2)
    assert len(claimed.jobs) == 1
    assert await rests(world, claimed.seen)
    await world.push()
    assert await world.store.wait(30.0, seen=claimed.seen)
    assert await world.store.wait(30.0, seen=claimed.seen)
    assert await rests(world, (await world.wish(2)).seen)


async def test_who_claimed_beside_a_unit_has_seen_that_unit(world: World) -> None:
    await world.alive("w1")
    unit = world.make.pushed()
    stepped = await world.store.step([unit], now=world.now, want=world.make.want(2))
    assert len(stepped.claimed.jobs) == 1
    assert await rests(world, stepped.claimed.seen)


async def test_a_new_job_wakes_all_who_wait(world: World) -> None:
    others = [asyncio.ensure_future(world.store.wait(30.0)) for _ in range(3)]
    assert await woken_by(world, world.push())
    assert await asyncio.gather(*others) == [True] * 3


async def test_whatever_may_make_a_job_claimable_wakes_who_waits(world: World) -> None:
    held = await world.push(held=True)
    scheduled = await world.push(run_at=world.now + SECOND)
    assert await woken_by(world, world.do(held, j.Activate(), USER))
    await world.gate("default", closed=True)
    assert await woken_by(world, world.gate("default", opened_at=world.now))
    world.clock.move(SECOND)
    [due] = await world.due()
    assert due.stored.job == scheduled
    assert await woken_by(world, world.must(world.make.ticking(due)))
    [taken] = await world.claim()
    back = world.do(taken.job, j.HandBack(lease=taken.job.lease), WORKER)
    assert await woken_by(world, back)
