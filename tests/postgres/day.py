"""A day in a store: every call that is made again and again, each with a small batch."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.stores.api import (
    Body,
    Fair,
    Idempotency,
    LimitKind,
    Line,
    Note,
    Record,
    Retention,
    Stored,
    Unique,
    Unit,
    key_of,
)
from detent.stores.inside import enqueue
from detent.stores.select import Filter, Page
from tests.contract.flowing import completing, job
from tests.contract.making import SECOND, USER, WORKER
from tests.contract.world import HOUR, World

LIVE = ("scheduled", "available", "active")
PAGE = Page(10)


async def live(world: World, url: str, day: str) -> None:
    """All of it, once a day."""
    await world.alive("w1", f"lost-{day}")
    await _jobs(world)
    await _keys(world, day)
    await _flow(world, day)
    await _care(world)
    await _elsewhere(world, url, day)
    await _clock(world, day)
    await _read(world, url)
    await _forget(world)


async def _jobs(world: World) -> None:
    await world.must(*(world.make.pushed() for _ in range(14)))
    await _ends(world, await world.claim(4))
    one, two, three, four, five, *rest = await world.claim(10)
    units = [completing(world, stored) for stored in rest]
    want = world.make.want(3)
    await world.store.step(units, now=world.now, want=want)
    await world.store.step((), now=world.now, want=want)
    held = world.make.doing(five.job, j.Hold(), USER)
    await world.store.step([held], now=world.now, want=world.make.want(1))
    await world.store.step([_telling(world, three)], now=world.now, want=world.make.want(1))
    await world.must(_telling(world, four))
    await world.store.note(
        [(key_of(one.job), one.job.lease or "", Note(1, 1, 5, "x"))], now=world.now
    )
    await world.store.append_logs([(key_of(one.job), Line(1, "x"))])
    await world.do(two.job, j.Fail(lease=two.job.lease, code="x"), WORKER)
    await world.rearm(one.job, world.now + SECOND)
    [wired] = await world.claim(1, wire=True)
    await world.store.extend([(wired.job.lease or "", world.now + 2 * SECOND)], now=world.now)
    await world.must(completing(world, wired))


async def _ends(world: World, held: Sequence[Stored]) -> None:
    """With a result, and by a report of another kind; each with a claim, and without."""
    first, second, third, fourth = held
    for one, two in ((_resulting, (first, second)), (_snoozing, (third, fourth))):
        await world.must(one(world, two[0]))
        await world.store.step([one(world, two[1])], now=world.now, want=world.make.want(1))


def _resulting(world: World, stored: Stored) -> Unit:
    [move] = completing(world, stored).moves
    return world.make.moving(replace(move, result="1"))


def _snoozing(world: World, stored: Stored) -> Unit:
    lease = stored.job.lease
    command = j.Snooze(lease=lease, delay_us=SECOND)
    return world.make.doing(stored.job, command, WORKER, store={"lease": lease})


def _telling(world: World, stored: Stored) -> Unit:
    """The end of a job that has a result and had something to say."""
    [move] = completing(world, stored).moves
    return world.make.moving(replace(move, result="1", lines=(Line(1, "x"), Line(2, "y"))))


async def _keys(world: World, day: str) -> None:
    for _ in range(2):
        promise = Idempotency(day, "d", world.now + 10**9)
        await world.commit(world.make.pushed(unique=Unique("f", LIVE)))
        await world.commit(world.make.pushed(idempotency=promise))
    put = Record("queue", day, 1, "{}", world.now)
    await world.must(Unit(world.make.command_id(), puts=(put,)))


async def _flow(world: World, day: str) -> None:
    steps = (f"{day}-a", f"{day}-b")
    new = [job(world, name, f"{name}{number}", day) for name in steps for number in range(5)]
    await world.make_flow(day, w.chain(*steps), *new)
    for stored in await world.claim(10, queues=("default",)):
        await world.must(completing(world, stored))


async def _care(world: World) -> None:
    """Under limits, and in turns."""
    for key in ("k1", "k2"):
        await world.push(body=Body("mail.send", "[]", key=key))
    await world.limit("default", concurrency=1_000)
    await world.limit("k1", LimitKind.KEY, concurrency=5)
    await world.claim(10)
    await world.claim(2, fair=Fair.KEYS)
    await world.store.limits()
    await world.limit("default")
    await world.limit("k1", LimitKind.KEY)


async def _elsewhere(world: World, url: str, day: str) -> None:
    """Somebody enqueues in their own transaction, to a lane that is not there yet."""
    with psycopg.connect(url) as theirs:
        enqueue(theirs, world.make.pushed(body=Body(f"never.seen.{day}", "[]")), world.now)


async def _clock(world: World, day: str) -> None:
    await world.claim(1, holder=f"lost-{day}")
    world.clock.move(10 * SECOND)
    await world.lose(f"lost-{day}")
    for due in await world.due(10):
        await world.must(world.make.ticking(due))
    await world.store.take_due_records(now=world.now, limit=10)
    await world.store.overdue(now=world.now, limit=10)
    await world.store.workers(10)


async def _read(world: World, url: str) -> None:
    store = world.store
    one = await world.push(body=Body("mail.send", "[]", tags=("t",)))
    await store.get([key_of(one)])
    for chosen in (
        Filter(tenant=""),
        Filter(tenant="", state="active"),
        Filter(tenant="", workflow="first"),
        Filter(tenant="", tag="t"),
    ):
        await store.find(chosen, PAGE)
    # Deep in the past, and of a tenant that comes after all others.
    await store.find(Filter(tenant=""), Page(10, ("", "job-00001000")))
    await store.find(Filter(tenant="zz"), PAGE)
    await store.find(Filter(tenant="", state="cancelled"), PAGE)
    await store.find(Filter(tenant="", state="available", held=True), PAGE)
    await store.find_workflows("", None, PAGE)
    await store.history(key_of(one))
    await store.histories([key_of(one)])
    await store.held_by("w1", 10)
    await store.feed(0, 10)
    await _beside(world, url)
    await store.logs(key_of(one), 0, 10)
    await store.log_tail(0, 10)
    await store.flows([("", "first")])
    await store.records("queue", "", None, 10)
    await store.records("many", "", "004900", 10)


async def _beside(world: World, url: str) -> None:
    """The feed goes on while somebody has a transaction open, and when it has ended."""
    with psycopg.connect(url) as theirs:
        theirs.execute("SELECT pg_current_xact_id()")
        for _ in range(2):
            await world.push()
            await world.store.feed(0, 10)
    await world.store.feed(0, 10)


async def _forget(world: World) -> None:
    await world.store.seal(limit=100)
    await world.store.blocks(0, 10)
    rules = [Retention("completed", world.now + HOUR)]
    await world.store.prune(rules, now=world.now, limit=10)
