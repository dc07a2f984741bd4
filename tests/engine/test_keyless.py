"""Jobs that cannot be opened for lack of a key cost nothing, and are in nobody's way."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from detent.engine.engine import Engine
from detent.engine.keyless import Shut, is_keyless, opened_here, put_off
from detent.engine.keyring import Keyring, new_key
from detent.engine.secrets import Owner, Secrets
from detent.errors import SecretError, SecretUnreadable
from detent.lifecycle.job import JobState
from detent.stores.api import key_of
from detent.testing.clock import VirtualClock
from tests.contract.making import SECOND, SYSTEM
from tests.contract.world import World
from tests.engine.working import claim, push

OLD, NEW = new_key(), new_key()
LOCKED = {"type": "pay", "payload": '{"kwargs":{"token":"t"}}', "secret": ("kwargs.token",)}


def keyed(world: World, *written: str) -> Engine:
    return Engine(world.store, secrets=Secrets(Keyring(written)))


async def locked(world: World, **more: Any) -> tuple[str, str]:
    """A job whose key only others have."""
    return key_of(await push(keyed(world, OLD), **LOCKED, **more))


async def met(world: World, engine: Engine) -> list[Any]:
    """Claim what there is, as somebody would who hands it on; what opens."""
    return await opened_here(engine, await claim(world, engine))


async def test_it_goes_back_at_once_a_few_times_and_is_then_put_off_for_longer_and_longer(
    world: World,
) -> None:
    key, engine = await locked(world), keyed(world, NEW)
    waits = []
    for _ in range(14):
        assert await met(world, engine) == []
        [stored] = await world.store.get([key])
        assert stored is not None
        waits.append(((stored.job.run_at or 0) - world.now) // SECOND)
        assert (stored.job.failures, stored.job.losses) == (0, 0)
        await world.alive("w1", until=world.now + 7_200 * SECOND)
        world.clock.move(max(waits[-1], 0) * SECOND)
        await engine.upkeep.turn()
    assert waits[3:] == [30, 60, 120, 240, 480, 960, 1_920, 3_600, 3_600, 3_600, 3_600]
    back = await world.store.history(key)
    assert [one.name for one in back[:4]] == ["enqueue", "claim", "hand_back", "due"]
    assert "which is not among the keys of this process" in (back[2].reason or "")
    [opened] = await met(world, keyed(world, NEW, OLD))
    assert key_of(opened.job) == key, "whoever has the key runs it"


async def test_what_is_only_offered_is_put_off_as_well(world: World) -> None:
    """It cannot snooze, and stood at the head of its queue for ever: nothing behind it was sent."""
    key, engine = await locked(world, profile="engine"), keyed(world, NEW)
    error, waits = SecretUnreadable("It is locked", why="no_key"), []
    for _ in range(6):
        await world.alive("e1", until=world.now + 7_200 * SECOND)
        [offered] = await world.claim(push=True, by=SYSTEM, holder="e1")
        await engine.carry_out([put_off(offered, SYSTEM, error, world.now)])
        [stored] = await world.store.get([key])
        assert stored is not None
        waits.append(((stored.job.run_at or 0) - world.now) // SECOND)
        assert stored.job.state == ("retryable" if waits[-1] > 0 else "available")
        assert (stored.job.failures, stored.job.losses) == (0, 0)
        world.clock.move(max(waits[-1], 0) * SECOND)
        await engine.upkeep.turn()
    assert waits[3:] == [30, 60, 120]


async def test_what_is_broken_is_handed_on_to_fail(world: World) -> None:
    """Its key is here, and it opens nowhere."""
    await locked(world)
    engine = keyed(world, OLD)
    [stored] = await claim(world, engine)
    moved = replace(stored, body=replace(stored.body, type="other"))
    assert await opened_here(engine, [moved]) == [moved]


async def test_what_can_never_go_back_fails_with_its_reason(world: World) -> None:
    key = await locked(world, profile="rest")
    assert await met(world, keyed(world, NEW)) == []
    [stored] = await world.store.get([key])
    assert stored is not None
    assert (stored.job.state, stored.job.cause) == (JobState.DISCARDED, "not_retryable")
    [*_, last] = await world.store.history(key)
    assert (last.name, last.code) == ("fail", "secret_unreadable")


def test_a_key_file_that_cannot_be_read_is_no_fault_of_the_job(tmp_path: Path) -> None:
    owner, path = Owner("", "j", "pay"), tmp_path / "detent.db-key"
    token = Secrets(Keyring(path=path)).lock("t", owner)
    path.chmod(0o644)
    with pytest.raises(SecretError) as caught:
        Secrets(Keyring(path=path)).unlock(token, owner)
    assert is_keyless(caught.value)
    path.chmod(0o600)
    with pytest.raises(SecretError) as caught:
        Secrets(Keyring(path=path)).unlock(token, Owner("", "other", "pay"))
    assert not is_keyless(caught.value), "it has its key, and does not open"


def test_a_type_is_shut_for_longer_each_time_until_one_opens() -> None:
    clock = VirtualClock()
    shut = Shut(lambda: clock() / 1_000_000)
    pauses = []
    for _ in range(8):
        pause = shut.met("pay")
        assert pause is not None
        pauses.append(pause)
        assert shut.met("pay") is None
        assert shut.left(("pay", "mail")) == ("mail",)
        assert shut.opens_in_s() == pause
        clock.advance(pause)
        assert shut.left(("pay", "mail")) == ("pay", "mail")
        assert shut.opens_in_s() == math.inf
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert not shut.opened(["mail"])
    assert shut.opened(["pay"])
    assert shut.met("pay") == 1
