"""Secret arguments are locked in the store, open for their own job only, and hidden elsewhere."""

from __future__ import annotations

import base64
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from detent.engine.asks import Ask, born
from detent.engine.declared import KNOWN_US
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.engine.entering import Entry
from detent.engine.keyring import Keyring, new_key
from detent.engine.schedule import Plan
from detent.engine.secrets import REDACTED, Owner, Secrets, redacted, redacted_at
from detent.engine.shaping import Order, Part
from detent.errors import (
    BadArguments,
    BadSchedule,
    BadSecretKey,
    NoSecretKey,
    SecretUnreadable,
)
from detent.lifecycle import job as j
from detent.lifecycle.workflow import StepPlan
from detent.stores.api import key_of
from tests.contract.making import SECOND, USER
from tests.contract.world import World

PAYLOAD = '{"args":[],"kwargs":{"to":"a","n":1.50,"card":{"number":"4111-1111","kind":"x"}}}'
ASK = Ask(type="pay", payload=PAYLOAD, secret=("kwargs.card.number",))
OWNER = Owner("", "1", "pay")


def ring(*keys: str) -> Secrets:
    return Secrets(Keyring(keys or [new_key()]))


# --- locking --------------------------------------------------------------------------------------


def test_what_is_locked_opens_for_its_own_job_and_nothing_else_changes() -> None:
    secrets = ring()
    sealed = secrets.sealed(ASK, "1")
    assert "4111" not in sealed.payload
    assert '"to":"a","n":1.50' in sealed.payload
    assert sealed.secret == ()
    opened = secrets.opened(sealed.payload, OWNER)
    assert msgspec.json.decode(opened.payload) == msgspec.json.decode(PAYLOAD)
    assert opened.values == ("4111-1111",)
    assert "4111" not in repr(opened)


@pytest.mark.parametrize("value", [None, True, 0, -1.5, 2**70, "", "ä\u2028", [1, {"a": []}], {}])
def test_any_value_can_be_secret(value: object) -> None:
    secrets = ring()
    whole = Ask(type="pay", payload=msgspec.json.encode({"a": value}).decode(), secret=("a",))
    sealed = secrets.sealed(whole, "1")
    assert secrets.opened(sealed.payload, OWNER).payload == whole.payload


def test_every_item_of_a_list_is_locked_at_its_own_place() -> None:
    secrets = ring()
    payload = '{"cards":[{"n":"aaaa"},{"n":"bbbb"},{"other":1}]}'
    sealed = secrets.sealed(Ask(type="pay", payload=payload, secret=("cards.n",)), "1")
    assert "aaaa" not in sealed.payload
    assert secrets.opened(sealed.payload, OWNER).payload == payload
    cards = msgspec.json.decode(sealed.payload)["cards"]
    swapped = msgspec.json.encode({"cards": [cards[1], cards[0]]}).decode()
    with pytest.raises(SecretUnreadable):
        secrets.opened(swapped, OWNER)


@pytest.mark.parametrize(
    "owner", [Owner("", "2", "pay"), Owner("t", "1", "pay"), Owner("", "1", "log.everything")]
)
def test_moved_to_another_job_tenant_or_type_it_does_not_open(owner: Owner) -> None:
    secrets = ring()
    with pytest.raises(SecretUnreadable) as caught:
        secrets.opened(secrets.sealed(ASK, "1").payload, owner)
    assert caught.value.fields == {"path": "kwargs.card.number", "why": "damaged"}
    assert not caught.value.retryable


def test_moved_to_another_argument_it_does_not_open() -> None:
    secrets = ring()
    ask = Ask(type="pay", payload='{"a":"xxxx","b":"yyyy"}', secret=("a",))
    sealed = msgspec.json.decode(secrets.sealed(ask, "1").payload)
    with pytest.raises(SecretUnreadable):
        secrets.opened(msgspec.json.encode({"b": sealed["a"]}).decode(), OWNER)


def test_every_single_changed_byte_is_noticed() -> None:
    secrets = ring()
    token = secrets.lock("a secret", OWNER)
    form, name, box = token.split(".")
    raw = base64.urlsafe_b64decode(box)
    for at in range(len(raw)):
        bad = raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]
        with pytest.raises(SecretUnreadable):
            secrets.unlock(f"{form}.{name}.{base64.urlsafe_b64encode(bad).decode()}", OWNER)


@pytest.mark.parametrize(
    "token", ["", "1", "1.2", "1.x.!!", "1.x.AAAA", "2.x.AAAA", "1.x.y.z", "ä"]
)
def test_nonsense_is_refused_with_a_code(token: str) -> None:
    with pytest.raises(SecretUnreadable) as caught:
        ring().unlock(token, OWNER)
    assert caught.value.code == "secret_unreadable"


def test_short_boxes_are_refused_with_a_code() -> None:
    secrets = ring()
    _, name, _ = secrets.lock("x", OWNER).split(".")
    with pytest.raises(SecretUnreadable):
        secrets.unlock(f"1.{name}.AAAA", OWNER)


def test_equal_values_look_different() -> None:
    secrets = ring()
    assert secrets.sealed(ASK, "1").payload != secrets.sealed(ASK, "1").payload


def test_where_a_part_is_declared_but_cannot_be_nothing_is_stored_in_the_clear() -> None:
    ask = Ask(type="pay", payload='{"card":"4111"}', secret=("card.number",))
    with pytest.raises(BadArguments) as caught:
        ring().sealed(ask, "1")
    assert "4111" not in str(caught.value)
    for absent in ('{"card":null}', '{"card":{}}', "{}"):
        sealed = ring().sealed(Ask(type="pay", payload=absent, secret=("card.number",)), "1")
        assert sealed.payload == absent


def test_nobody_can_bring_something_that_looks_locked() -> None:
    with pytest.raises(BadArguments):
        ring().sealed(Ask(type="pay", payload='[{"$detent:secret":"1.a.b"}]'), "1")


def test_a_job_that_is_run_again_has_its_secrets_locked_anew() -> None:
    old, new = new_key(), new_key()
    first = ring(old).sealed(ASK, "1")
    again = Ask(type="pay", payload=first.payload, rerun_of="1")
    second = ring(new, old).sealed(again, "2")
    assert second.payload != first.payload
    opened = ring(new).opened(second.payload, Owner("", "2", "pay"))
    assert opened.values == ("4111-1111",)


def test_everybody_else_sees_that_there_is_a_secret() -> None:
    sealed = ring().sealed(ASK, "1")
    assert msgspec.json.decode(redacted(sealed.payload))["kwargs"]["card"]["number"] == REDACTED
    assert redacted_at(PAYLOAD, ASK.secret or ()) == PAYLOAD.replace("4111-1111", REDACTED)
    assert redacted("[1]") == "[1]"


# --- keys -----------------------------------------------------------------------------------------


def test_old_keys_unlock_and_the_newest_locks() -> None:
    old, new = new_key(), new_key()
    before = ring(old).sealed(ASK, "1")
    both = ring(new, old)
    assert both.opened(before.payload, OWNER).values == ("4111-1111",)
    after = both.sealed(ASK, "1")
    assert ring(new).opened(after.payload, OWNER).values == ("4111-1111",)
    with pytest.raises(SecretUnreadable) as caught:
        ring(new).opened(before.payload, OWNER)
    assert caught.value.fields["why"] == "no_key"


def test_the_environment_says_which_keys() -> None:
    one, two = new_key(), new_key()
    many = Keyring.of({"DETENT_SECRET_KEYS": f"{two}, {one}", "DETENT_SECRET_KEY": "ignored"})
    alone = Keyring.of({"DETENT_SECRET_KEY": one})
    assert many.first() != alone.first()
    assert many.find(alone.first().id) == alone.first()
    assert one not in repr(alone.first())


@pytest.mark.parametrize("bad", ["x", "AAAA", "ä", "A" * 40, "hunter2hunter2"])
def test_what_is_no_key_is_refused_and_not_told(bad: str) -> None:
    with pytest.raises(BadSecretKey) as caught:
        Keyring.of({"DETENT_SECRET_KEY": bad})
    assert bad not in str(caught.value).replace("base64", "").split(" ")


def test_a_key_file_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "detent.db-key"
    first, second = Keyring(path=path), Keyring(path=path)
    assert first.first() == second.first()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_new_first_line_of_the_key_file_is_a_new_key(tmp_path: Path) -> None:
    path = tmp_path / "key"
    reader = Keyring(path=path)
    old = reader.first()
    path.write_text(f"{new_key()}\n{path.read_text()}")
    rotated = Keyring(path=path)
    assert rotated.first() != old
    assert rotated.find(old.id) == old
    assert reader.find(rotated.first().id) == rotated.first()


def test_a_key_file_that_others_can_read_replace_or_empty_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    Keyring(path=path).first()
    path.chmod(0o640)
    with pytest.raises(BadSecretKey, match="chmod 600"):
        Keyring(path=path).first()
    path.chmod(0o600)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(BadSecretKey):
        Keyring(path=tmp_path / "link").first()
    path.write_text("")
    with pytest.raises(BadSecretKey, match="empty"):
        Keyring(path=path).first()


def test_reading_never_makes_a_key(tmp_path: Path) -> None:
    with pytest.raises(SecretUnreadable):
        Keyring(path=tmp_path / "key").find("0")
    assert not os.listdir(tmp_path)  # noqa: PTH208 - nothing at all


# --- the engine -----------------------------------------------------------------------------------


async def test_without_a_key_nothing_is_enqueued(world: World, engine: Engine) -> None:
    with pytest.raises(NoSecretKey, match="DETENT_SECRET_KEY") as caught:
        await engine.enqueue([ASK], USER)
    assert caught.value.code == "no_secret_key"
    assert await world.store.counts() == []


async def test_the_store_gets_only_what_is_locked(world: World) -> None:
    engine = Engine(world.store, secrets=ring())
    [made] = await engine.enqueue([ASK], USER)
    assert isinstance(made, Enqueued)
    [stored] = await world.store.get([key_of(made.job)])
    assert stored is not None
    assert "4111" not in stored.body.payload
    opened = engine.secrets.opened(stored.body.payload, Owner("", made.job.id, "pay"))
    assert msgspec.json.decode(opened.payload) == msgspec.json.decode(PAYLOAD)


async def test_jobs_that_come_together_are_locked_by_what_was_declared(world: World) -> None:
    engine = Engine(world.store, secrets=ring())
    await engine.declared.tell({"pay": ("kwargs.card.number",)})
    await engine.enqueue_together([Ask(type="pay", payload=PAYLOAD)], USER)
    await engine.enter(Ask(type="pay", payload=PAYLOAD), USER, Entry(()))
    for claimed in await world.claim(2):
        assert "4111" not in claimed.body.payload
    with pytest.raises(BadArguments, match="by name"):
        await engine.enqueue_together([Ask(type="pay", payload='["4111-1111"]')], USER)


async def test_jobs_of_workflows_are_locked_too(world: World) -> None:
    engine = Engine(world.store, secrets=ring())
    order = Order(parts=(Part(StepPlan("a"), (ASK,)),), id="w")
    assert await engine.workflows.create(order, USER) == await _again(engine, order)
    [claimed] = await world.claim()
    assert "4111" not in claimed.body.payload
    owner = Owner("", claimed.job.id, "pay")
    assert engine.secrets.opened(claimed.body.payload, owner).values == ("4111-1111",)


async def _again(engine: Engine, order: Order) -> object:
    made = await engine.workflows.create(order, USER)
    return msgspec.structs.replace(made, is_new=True)


async def test_a_schedule_keeps_no_secrets(engine: Engine) -> None:
    with pytest.raises(BadSchedule, match="secret"):
        await engine.schedules.add(Plan(name="x", expression="@daily", job=ASK), USER)


@pytest.mark.parametrize("payload", [PAYLOAD, '["4111-1111"]'])
async def test_a_schedule_whose_arguments_turn_out_to_be_secret_is_paused_without_them(
    world: World, engine: Engine, payload: str
) -> None:
    plan = Plan(name="x", expression="@every 1m", job=Ask(type="pay", payload=payload))
    await engine.schedules.add(plan, USER)
    await engine.declared.tell({"pay": ("kwargs.card.number",)})
    world.clock.move(KNOWN_US)
    with pytest.raises(BadSchedule, match="secret"):
        await engine.schedules.fire(plan.key, USER)
    for _ in range(2):
        world.clock.move(60 * SECOND)
        await engine.upkeep.turn()
        held = await engine.schedules.get(plan.key)
        assert held is not None
        assert (held.is_paused, held.fired, held.changes[-1].actor) == (True, 0, "system")
        assert "4111" not in msgspec.json.encode(held).decode()
        await engine.schedules.resume(plan.key, USER)


async def test_a_schedule_of_such_a_type_without_secrets_in_it_goes_on(
    world: World, engine: Engine
) -> None:
    for name, payload in (("x", "[]"), ("y", '{"kwargs":{"to":"a"}}')):
        ask = Ask(type="pay", payload=payload)
        await engine.schedules.add(Plan(name=name, expression="@every 1m", job=ask), USER)
    await engine.declared.tell({"pay": ("kwargs.card.number",)})
    world.clock.move(60 * SECOND)
    await engine.upkeep.turn()
    assert [one.fired for one in await engine.schedules.list()] == [1, 1]


def test_whoever_forgets_to_lock_is_stopped() -> None:
    with pytest.raises(NoSecretKey):
        born(ASK, "1", 0, j.Context(USER, "c", place=1))


def test_a_name_in_escapes_looks_locked_too() -> None:
    escaped = '[{"\\u0024detent:secret":"1.a.b"}]'
    with pytest.raises(BadArguments):
        ring().sealed(Ask(type="pay", payload=escaped), "1")
    assert redacted(escaped) == f'["{REDACTED}"]'
    plain = '["\\u0000",{"\\u0061":1}]'
    assert ring().sealed(Ask(type="pay", payload=plain), "1").payload == plain


def test_a_key_file_that_cannot_be_made_is_told_with_a_code(tmp_path: Path) -> None:
    with pytest.raises(BadSecretKey, match="DETENT_SECRET_KEY"):
        Keyring(path=tmp_path / "nowhere" / "key").first()


def test_a_pipe_is_no_key_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(BadSecretKey, match="no file"):
        Keyring(path=tmp_path / "key").first()


def test_many_who_need_a_key_file_at_once_get_the_same(tmp_path: Path) -> None:
    rings = [Keyring(path=tmp_path / "key") for _ in range(16)]
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda one: one.first().id, rings))
    assert len(set(found)) == 1
    assert [one.name for one in tmp_path.iterdir()] == ["key"]
