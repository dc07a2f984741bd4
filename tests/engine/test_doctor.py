"""What is wrong with a fleet is told, on every store: with the fault, and not without it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from detent import stores
from detent.engine.access import Scope
from detent.engine.addresses import Rules
from detent.engine.asks import Ask
from detent.engine.doctor.examination import LOOKS
from detent.engine.doctor.sight import sight_of
from detent.engine.doctor.starting import doubts
from detent.engine.engine import Engine
from detent.engine.keyring import Keyring, new_key
from detent.engine.posting import Poster
from detent.engine.schedule import Plan
from detent.engine.secrets import Secrets
from detent.lifecycle.profile import ProfileName
from detent.lifecycle.worker import WorkerState
from detent.stores.api import GateKind, Who, WorkerRow
from detent.stores.checks import Check, Grade
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.receiver import receiving
from tests.engine.working import claim, complete_all, push

DAY = 86_400 * SECOND
OLD, NEW = new_key(), new_key()


async def looked(engine: Engine) -> dict[str, Check]:
    """Every check by its name."""
    sight = await sight_of(engine)
    return {one.name: one for look in LOOKS for one in await look(sight)}


async def wrong(engine: Engine, *, production: bool = False) -> list[str]:
    found = await looked(engine)
    graded = {name: one.graded(production=production) for name, one in found.items()}
    return [name for name, grade in graded.items() if grade is not Grade.OK]


async def register(world: World, name: str, **who: Any) -> None:
    row = WorkerRow(name, world.now + 15 * SECOND, who=Who(**who), state="running")
    assert list(await world.store.beat([row], now=world.now)) == [True]


async def test_an_empty_store_is_fine_for_one_person_and_not_for_others(engine: Engine) -> None:
    assert await wrong(engine) == []
    assert await wrong(engine, production=True) == ["API keys", "workers", "upkeep"]


async def test_a_fleet_at_work_has_nothing_wrong(world: World, engine: Engine) -> None:
    await register(world, "w1")
    await register(world, "w2")
    await engine.access.create([Scope.ADMIN])
    await push(engine)
    await engine.upkeep.turn()
    assert await wrong(engine, production=True) == []


async def test_jobs_wait_and_nobody_is_there(world: World, engine: Engine) -> None:
    await push(engine)
    found = await looked(engine)
    assert found["workers"].grade is Grade.WARN
    assert found["workers"].found == "0 workers alive, 1 job available"
    await register(world, "w1")
    found = await looked(engine)
    assert found["workers"].graded(production=False) is Grade.OK
    assert found["workers"].graded(production=True) is Grade.WARN


async def test_a_type_that_nobody_takes_is_named(world: World, engine: Engine) -> None:
    await push(engine, type="mail.send")
    await push(engine, type="mail.sent", queue="mail")
    await register(world, "w1", types=("mail.send",))
    told = (await looked(engine))["types"]
    assert (told.grade, told.found) == (Grade.WARN, "nobody takes mail.sent in queue mail")
    await register(world, "w2", types=("mail.sent",), queues=("default",))
    assert "types" in await wrong(engine)
    await register(world, "w3", types=("mail.sent",), queues=("mail",))
    assert "types" not in await wrong(engine)


async def test_one_that_stops_takes_nothing_in(world: World, engine: Engine) -> None:
    await push(engine)
    row = WorkerRow("w1", world.now + SECOND, who=Who(), state=WorkerState.STOPPING)
    await world.store.beat([row], now=world.now)
    assert "types" in await wrong(engine)


async def test_a_long_queue_does_not_hide_a_short_one(world: World, engine: Engine) -> None:
    await engine.enqueue([Ask(type="known")] * 300, USER)
    await push(engine, type="unknown", queue="rare")
    await register(world, "w1", types=("known",))
    assert (await looked(engine))["types"].found == "nobody takes unknown in queue rare"


async def test_who_fetches_over_http_has_some_time_to_come(world: World, engine: Engine) -> None:
    await register(world, "w1", types=("other",))
    await push(engine, profile=ProfileName.OJS)
    assert "types" not in await wrong(engine)
    world.clock.move(600 * SECOND)
    await register(world, "w2", types=("other",))
    assert (await looked(engine))["types"].found == "nobody takes mail.send in queue default"


async def test_what_is_held_waits_for_nobody(world: World, engine: Engine) -> None:
    await register(world, "w1", types=("other",))
    await push(engine, held=True)
    assert not {"types", "workers"} & set(await wrong(engine))


async def test_nobody_has_looked_for_long(world: World, engine: Engine) -> None:
    await push(engine)
    await engine.upkeep.turn()
    assert "upkeep" not in await wrong(engine)
    world.clock.move(120 * SECOND)
    assert "upkeep" in await wrong(engine)


async def test_a_look_that_is_still_to_come_is_a_clock_gone_wrong(
    world: World, engine: Engine
) -> None:
    await engine.upkeep.turn()
    world.clock.move(-3_600 * SECOND)
    assert "still to come" in (await looked(engine))["upkeep"].found


async def test_a_worker_whose_time_is_over_and_nobody_said_so(world: World, engine: Engine) -> None:
    await world.alive("w1", until=world.now + SECOND)
    assert "leases" not in await wrong(engine)
    world.clock.move(120 * SECOND)
    found = (await looked(engine))["leases"]
    assert (found.grade, found.found) == (Grade.WARN, "over, and not taken back: worker w1")


async def test_a_lease_of_a_job_that_is_over(world: World, engine: Engine) -> None:
    job = await push(engine)
    await world.claim(wire=True, holder="remote", lease_us=SECOND)
    assert "leases" not in await wrong(engine)
    world.clock.move(120 * SECOND)
    assert (await looked(engine))["leases"].found == f"over, and not taken back: job {job.id}"


async def test_a_slot_that_nobody_fires(world: World, engine: Engine) -> None:
    plan = Plan(name="report", expression="*/5 * * * *", job=Ask(type="x"))
    await engine.schedules.add(plan, USER)
    assert "schedules" not in await wrong(engine)
    world.clock.move(3_600 * SECOND)
    assert (await looked(engine))["schedules"].found.startswith("late: report since ")
    await engine.schedules.pause(("", "report"), USER, None)
    assert "schedules" not in await wrong(engine)


@pytest.mark.parametrize("kind", GateKind)
async def test_a_pause_is_told_with_who_made_it(engine: Engine, kind: GateKind) -> None:
    await engine.operators.pause(kind, "mail", USER, "restored")
    found = (await looked(engine))["pauses"]
    assert found.grade is Grade.WARN
    assert found.found.startswith(f"paused: {kind} mail by {USER.id} at ")
    await engine.operators.resume(kind, "mail", USER, None)
    assert "pauses" not in await wrong(engine)


async def test_a_pause_of_another_tenant_is_told_too(engine: Engine) -> None:
    await push(engine, tenant="acme", queue="mail")
    await engine.operators.pause(GateKind.QUEUE, "mail", USER, None, tenant="acme")
    assert "pauses" in await wrong(engine)


async def test_a_webhook_that_fails_is_told(world: World) -> None:
    poster = Poster(Rules(allow=("127.0.0.0/8",)))
    engine = Engine(world.store, secrets=Secrets(Keyring([NEW])), poster=poster)
    async with receiving(500) as receiver:
        await engine.webhooks.add(receiver.url, ["*"])
        assert "webhooks" not in await wrong(engine)
        await push(engine)
        await engine.webhooks.turn()
        await engine.upkeep.turn()
        await engine.webhooks.delivering.settled()
    assert (await looked(engine))["webhooks"].found == f"{receiver.url}: 1 try failed in a row"


async def test_the_secret_of_a_webhook_needs_its_key_too(world: World) -> None:
    poster = Poster(Rules(allow=("127.0.0.0/8",)))
    before = Engine(world.store, secrets=Secrets(Keyring([OLD])), poster=poster)
    await before.webhooks.add("http://127.0.0.1/", ["*"])
    after = Engine(world.store, secrets=Secrets(Keyring([NEW])))
    assert "secrets" in await wrong(after)


async def test_nobody_forgets_what_has_ended(world: World, engine: Engine) -> None:
    await push(engine)
    await complete_all(engine, await claim(world, engine))
    assert "retention" not in await wrong(engine, production=True)
    world.clock.move(60 * DAY)
    assert "retention" not in await wrong(engine)
    assert "retention" in await wrong(engine, production=True)


async def test_a_key_that_is_about_to_end_and_one_that_has(world: World, engine: Engine) -> None:
    await engine.access.create([Scope.READ], name="grafana", expires_at=world.now + DAY)
    assert (await looked(engine))["API keys"].found.startswith("about to end: grafana at ")
    world.clock.move(2 * DAY)
    assert (await looked(engine))["API keys"].found == "none opens any more"
    await engine.access.create([Scope.READ])
    assert "API keys" not in await wrong(engine)


def keyed(world: World, *written: str) -> Engine:
    return Engine(world.store, secrets=Secrets(Keyring(written)))


async def locked(world: World) -> None:
    """A job with a secret, of a type that says so."""
    engine = keyed(world, OLD)
    await engine.declared.tell({"pay": ("kwargs.token",)})
    await push(engine, type="pay", payload='{"kwargs":{"token":"t"}}', secret=("kwargs.token",))


async def test_a_job_whose_key_is_not_here_is_bad(world: World) -> None:
    await locked(world)
    found = (await looked(keyed(world, NEW)))["secrets"]
    assert found.grade is Grade.BAD
    assert found.found.startswith("locked, and the key is not here: 1 value with ")
    assert "secrets" not in await wrong(keyed(world, NEW, OLD))


async def test_secrets_are_declared_and_there_is_no_key(world: World) -> None:
    await keyed(world, OLD).declared.tell({"pay": ("kwargs.token",)})
    assert (await looked(keyed(world)))["secrets"].found == "1 type with secrets, and no key"
    assert "secrets" not in await wrong(keyed(world, NEW))


def test_a_start_is_not_held_up_by_a_store_that_cannot_be_asked() -> None:
    assert asyncio.run(doubts(Engine(stores.open("memory:", clock=lambda: 0)))) == []


async def test_whoever_starts_without_the_key_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await locked(world)
    with caplog.at_level(logging.WARNING, "detent.engine.doctor"):
        await doubts(keyed(world, OLD, NEW))
        assert "key" not in caplog.text
        caplog.clear()
        [told] = [one for one in await doubts(keyed(world, NEW)) if one.name == "secrets"]
    assert told.grade is Grade.BAD
    assert "DETENT_SECRET_KEYS" in caplog.text
