"""Webhooks are told of what happened: signed, again and again, and never at the others' cost."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest

from detent.engine import delivering
from detent.engine.addresses import Rules
from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.keyring import Keyring, new_key
from detent.engine.posting import Poster
from detent.engine.secrets import Secrets
from detent.engine.webhook import DELAYS_S, DELIVERY, HOOK, Standing, Style, signature
from detent.errors import (
    AddressRefused,
    BadWebhook,
    NoSecretKey,
    TooMany,
    UnknownWebhook,
)
from detent.stores.api import Record, Unit
from tests.contract.making import SECOND, USER
from tests.contract.world import World
from tests.engine.receiver import receiving

LOCAL = Rules(allow=("127.0.0.0/8",))
KEY = new_key()


@pytest.fixture
def engine(world: World) -> Engine:
    """An engine that may send to this machine."""
    return made(world)


def made(world: World, timeout_s: float = 10) -> Engine:
    return Engine(
        world.store, secrets=Secrets(Keyring([KEY])), poster=Poster(LOCAL, timeout_s=timeout_s)
    )


async def push(engine: Engine, count: int = 1, tenant: str = "") -> None:
    await engine.enqueue([Ask(type="x", tenant=tenant)] * count, USER)


async def deliver(engine: Engine) -> None:
    """Whatever is due, to its end."""
    while await engine.webhooks.turn():
        pass
    while (await engine.upkeep.turn()).records:
        await engine.webhooks.delivering.settled()


async def standings(engine: Engine, tenant: str = "") -> list[str]:
    return [one.standing.value for one in await engine.webhooks.deliveries(tenant)]


def test_the_signature_is_the_known_one() -> None:
    """A vector that any other implementation can be held against."""
    body = b'{"a":1}'
    expected = hmac.new(b"whsec_test_secret", b"1700000000." + body, hashlib.sha256).hexdigest()
    assert signature("whsec_test_secret", 1_700_000_000, body) == f"sha256={expected}"
    assert expected == "aecbc681fe3d2604c08ff8e880a0988d997a12367fcf9545e6a3b90c1dfc04b7"


async def test_an_event_arrives_signed(world: World, engine: Engine) -> None:
    async with receiving(200) as receiver:
        hook, secret = await engine.webhooks.add(receiver.url, ["job.available"])
        await push(engine)
        await deliver(engine)
        [got], [delivery] = receiver.got, await engine.webhooks.deliveries()
        timestamp = int(got.headers["X-Detent-Timestamp"])
        assert got.headers["X-Detent-Signature"] == signature(secret, timestamp, got.body)
        assert timestamp == world.now // SECOND
        assert got.headers["X-Detent-Delivery"] == delivery.id
        assert got.headers["X-Detent-Webhook"] == hook.id
        told = msgspec.json.decode(got.body)
        [fed] = await world.store.feed()
        assert told["type"] == got.headers["X-Detent-Event"] == "job.available"
        assert told["subject"] == told["data"]["job_id"] == fed.event.record
        assert told["time"] == "2023-11-14T22:13:20Z"
        assert (delivery.standing, delivery.status, delivery.tries) == (Standing.DELIVERED, 200, 1)


async def test_only_what_was_asked_for_is_sent_and_only_to_its_own_tenant(
    world: World, engine: Engine
) -> None:
    async with receiving(200) as receiver:
        for tenant, events in (("", ["job.claim"]), ("", ["workflow.*"]), ("other", ["*"])):
            await engine.webhooks.add(receiver.url, events, tenant=tenant)
        await push(engine, 2)
        await world.claim(1)
        await push(engine, 1, tenant="other")
        await deliver(engine)
        types = [one.headers["X-Detent-Event"] for one in receiver.got]
        assert sorted(types) == ["job.active", "job.available"]
        assert (await standings(engine), await standings(engine, "other")) == (
            ["delivered"],
            ["delivered"],
        )


async def test_what_happened_before_it_was_added_is_not_sent(engine: Engine) -> None:
    async with receiving(200) as receiver:
        await push(engine, 3)
        await engine.webhooks.add(receiver.url, ["*"])
        await push(engine, 1)
        await deliver(engine)
        assert len(receiver.got) == 1


async def test_it_is_tried_again_with_patience_under_the_same_id(
    world: World, engine: Engine
) -> None:
    async with receiving(500, 503, 429, 200) as receiver:
        hook, secret = await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await deliver(engine)
        for number, delay in enumerate(DELAYS_S[:3], start=1):
            assert len(receiver.got) == number
            world.clock.move(delay * SECOND - 1)
            await deliver(engine)
            assert len(receiver.got) == number
            world.clock.move(1)
            await deliver(engine)
        assert len(receiver.got) == 4
        assert len({one.headers["X-Detent-Delivery"] for one in receiver.got}) == 1
        assert len({one.body for one in receiver.got}) == 1
        stamps = [one.headers["X-Detent-Timestamp"] for one in receiver.got]
        assert stamps == sorted(set(stamps))
        last = receiver.got[-1]
        expected = signature(secret, int(stamps[-1]), last.body)
        assert last.headers["X-Detent-Signature"] == expected
        assert await standings(engine) == ["delivered"]
        after = await engine.webhooks.get(("", hook.id))
        assert after is not None
        assert after.failures == 0


async def test_after_the_last_try_it_is_dead_and_can_be_sent_again_by_hand(
    world: World, engine: Engine
) -> None:
    async with receiving(*[500] * (len(DELAYS_S) + 1), 200) as receiver:
        await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        for delay in (0, *DELAYS_S):
            world.clock.move(delay * SECOND)
            await deliver(engine)
        assert len(receiver.got) == len(DELAYS_S) + 1
        [dead] = await engine.webhooks.deliveries()
        assert (dead.standing, dead.status, dead.error) == (Standing.DEAD, 500, "it answered 500")
        await engine.webhooks.retry(("", dead.id))
        await deliver(engine)
        assert await standings(engine) == ["delivered"]
        world.clock.move(delivering.KEPT_US)
        await deliver(engine)
        assert await standings(engine) == []


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 410])
async def test_what_will_not_change_is_not_tried_again(engine: Engine, status: int) -> None:
    async with receiving(status) as receiver:
        await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await deliver(engine)
        assert await standings(engine) == ["dead"]
        assert len(receiver.got) == 1


async def test_who_never_answers_is_switched_off_and_can_be_switched_on_again(
    world: World, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "DISABLE_AFTER", 3)
    async with receiving(*[404] * 5, 200) as receiver:
        hook, _ = await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine, 5)
        for _ in range(5):
            await deliver(engine)
        off = await engine.webhooks.get(("", hook.id))
        assert off is not None
        assert (off.active, off.why) == (False, "3 tries in a row failed")
        assert off.disabled_at == world.now
        before = len(receiver.got)
        await push(engine)
        await deliver(engine)
        assert len(receiver.got) == before
        await engine.webhooks.edit(("", hook.id), active=True)
        await push(engine)
        await deliver(engine)
        assert len(receiver.got) == before + 1


async def test_what_waits_for_a_webhook_that_is_gone_is_dead(world: World, engine: Engine) -> None:
    async with receiving(500) as receiver:
        hook, _ = await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await deliver(engine)
        await engine.webhooks.remove(("", hook.id))
        world.clock.move(DELAYS_S[0] * SECOND)
        await deliver(engine)
        [dead] = await engine.webhooks.deliveries()
        assert (dead.standing, dead.error) == (Standing.DEAD, "the webhook was removed")
        assert len(receiver.got) == 1


async def test_a_removed_webhook_stays_away_whoever_changes_it_meanwhile(engine: Engine) -> None:
    async with receiving(500) as receiver:
        hook, _ = await engine.webhooks.add(receiver.url, ["job.*"])
        key = ("", hook.id)
        edits = [engine.webhooks.edit(key, active=bool(at % 2)) for at in range(5)]
        removed = engine.webhooks.remove(key)
        done = await asyncio.gather(*edits, removed, return_exceptions=True)
        assert await engine.webhooks.get(key) is None
        assert done[-1] is None


async def test_a_delivery_is_sent_again_whoever_asks_for_it_meanwhile(engine: Engine) -> None:
    async with receiving(500) as receiver:
        await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await deliver(engine)
        [failed] = await engine.webhooks.deliveries()
        await asyncio.gather(*(engine.webhooks.retry(("", failed.id)) for _ in range(5)))
        await deliver(engine)
        assert len(receiver.got) == 2


async def test_what_waits_for_a_webhook_that_is_switched_off_is_dead(
    world: World, engine: Engine
) -> None:
    async with receiving(500) as receiver:
        hook, _ = await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await deliver(engine)
        await engine.webhooks.edit(("", hook.id), active=False)
        world.clock.move(DELAYS_S[0] * SECOND)
        await deliver(engine)
        [dead] = await engine.webhooks.deliveries()
        assert dead.error == "the webhook is switched off"
        assert len(receiver.got) == 1


async def test_a_secret_that_does_not_open_is_the_end_of_a_delivery(world: World) -> None:
    other = Engine(world.store, secrets=Secrets(Keyring([new_key()])), poster=Poster(LOCAL))
    async with receiving(200) as receiver:
        await made(world).webhooks.add(receiver.url, ["job.*"])
        await push(other)
        await deliver(other)
        assert await standings(other) == ["dead"]
        assert receiver.got == []


async def test_a_new_secret_signs_at_once_and_the_old_one_for_a_day_more(
    world: World, engine: Engine
) -> None:
    async with receiving(200) as receiver:
        hook, old = await engine.webhooks.add(receiver.url, ["job.*"])
        _, new = await engine.webhooks.rotate(("", hook.id))
        for seconds, expected in ((0, [new, old]), (24 * 3_600, [new])):
            world.clock.move(seconds * SECOND)
            await push(engine)
            await deliver(engine)
            got = receiver.got[-1]
            stamp = int(got.headers["X-Detent-Timestamp"])
            signed = [signature(one, stamp, got.body) for one in expected]
            assert got.headers["X-Detent-Signature"] == ",".join(signed)


async def test_secrets_are_locked_in_the_store(world: World, engine: Engine) -> None:
    hook, secret = await engine.webhooks.add("http://127.0.0.1:1/", ["*"])
    [record] = await world.store.record([(HOOK, "", hook.id)])
    assert record is not None
    assert secret not in (record.data or "")
    with pytest.raises(NoSecretKey):
        await Engine(world.store, poster=Poster(LOCAL)).webhooks.add("http://127.0.0.1:1/", ["*"])


async def test_a_server_that_is_silent_holds_up_neither_time_nor_other_webhooks(
    world: World,
) -> None:
    engine = made(world, timeout_s=60)
    async with receiving() as silent, receiving(200) as good:
        for receiver in (silent, good):
            await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await engine.webhooks.turn()
        async with asyncio.timeout(20):
            await engine.upkeep.turn()
            await _until(silent.got)
            while "delivered" not in await standings(engine):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        await engine.webhooks.close()
        assert len(good.got) == 1
        assert sorted(await standings(engine)) == ["delivered", "waiting"]


async def _until(got: Sequence[object]) -> None:
    while not got:  # noqa: ASYNC110 - what comes in has no event of its own
        await asyncio.sleep(0)


async def test_what_a_dead_process_had_taken_is_sent_by_another(world: World) -> None:
    dying, other = made(world, timeout_s=60), made(world)
    async with receiving() as silent, receiving(200) as good:
        hook, _ = await dying.webhooks.add(silent.url, ["job.*"])
        await push(dying)
        await dying.webhooks.turn()
        async with asyncio.timeout(20):
            await dying.upkeep.turn()
            await _until(silent.got)
        await dying.webhooks.close()
        await other.webhooks.edit(("", hook.id), url=good.url)
        await deliver(other)
        assert good.got == []
        world.clock.move(delivering.TRY_US)
        await deliver(other)
        assert [one.headers["X-Detent-Delivery"] for one in good.got] == [
            one.headers["X-Detent-Delivery"] for one in silent.got
        ]


async def test_however_many_processes_spread_there_is_one_delivery_per_event(
    world: World, engine: Engine
) -> None:
    async with receiving(200) as receiver:
        await engine.webhooks.add(receiver.url, ["job.*"])
        engines = [made(world) for _ in range(4)]
        await push(engine, 40)
        for _ in range(4):
            await asyncio.gather(*(one.webhooks.turn() for one in engines))
            world.clock.move(20 * SECOND)
        for _ in range(3):
            await asyncio.gather(*(one.upkeep.turn() for one in engines))
            await asyncio.gather(*(one.webhooks.delivering.settled() for one in engines))
            world.clock.move(SECOND)
        ids = [one.headers["X-Detent-Delivery"] for one in receiver.got]
        assert len(ids) == len(set(ids)) == 40


async def test_a_delivery_that_cannot_be_read_hurts_no_other(world: World, engine: Engine) -> None:
    await world.must(Unit("c", puts=(Record(DELIVERY, "0", 1, '{"new":1}', world.now),)))
    async with receiving(200) as receiver:
        await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine)
        await engine.webhooks.turn()
        await engine.upkeep.turn()
        await engine.webhooks.delivering.settled()
        assert len(receiver.got) == 1


async def test_no_more_than_so_many_are_under_way_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivering, "SENDING_MAX", 2)
    async with receiving(200) as receiver:
        await engine.webhooks.add(receiver.url, ["job.*"])
        await push(engine, 5)
        await engine.webhooks.turn()
        await engine.upkeep.turn()
        await engine.webhooks.delivering.settled()
        assert len(receiver.got) == 2


@contextmanager
def refused(field: str) -> Iterator[None]:
    with pytest.raises(BadWebhook) as caught:
        yield
    assert caught.value.fields["field"] == field


async def test_mistakes_are_told_when_it_is_made(world: World, engine: Engine) -> None:
    good = "http://127.0.0.1:9/"
    with refused("url"):
        await engine.webhooks.add("ftp://a", ["*"])
    for events in ([], ["job.finished"], ["jobs.*"], ["job"]):
        with refused("events"):
            await engine.webhooks.add(good, events)
    for secret in ("", "x" * 15, "x" * 257, f"{'x' * 20}\r\nX-Evil: 1", f"{'x' * 20}\u200b"):
        with refused("secret"):
            await engine.webhooks.add(good, ["*"], secret=secret)
        with refused("secret"):
            await engine.webhooks.add(good, ["*"], secret=secret, style=Style.OJS)
    strict = Engine(world.store, secrets=Secrets(Keyring([KEY])))
    with pytest.raises(AddressRefused):
        await strict.webhooks.add(good, ["*"])
    own = "long enough to be one"
    hook, given = await engine.webhooks.add(good, ["*"], secret=own)
    assert given == own
    with refused("events"):
        await engine.webhooks.edit(("", hook.id), events=["x.y"])
    with pytest.raises(AddressRefused):
        await strict.webhooks.edit(("", hook.id), url=good)
    for unknown in (
        engine.webhooks.edit(("", "no"), active=False),
        engine.webhooks.edit(("t", hook.id), active=False),
        engine.webhooks.remove(("", "no")),
        engine.webhooks.rotate(("", "no")),
        engine.webhooks.retry(("", "no")),
    ):
        with pytest.raises(UnknownWebhook):
            await unknown


async def test_a_tenant_has_so_many_and_no_more(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detent.engine.webhooks.HOOKS_MAX", 1)
    await engine.webhooks.add("http://127.0.0.1:9/", ["*"])
    with pytest.raises(TooMany):
        await engine.webhooks.add("http://127.0.0.1:9/", ["*"])
    await engine.webhooks.add("http://127.0.0.1:9/", ["*"], tenant="other")
