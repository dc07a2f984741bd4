"""Forgetting by rules: what a dry run counts is what goes."""

from __future__ import annotations

from detent.engine.asks import Ask
from detent.engine.engine import Engine
from detent.engine.forgetting import Forgetting
from detent.stores.api import Retention, key_of
from tests.contract.making import USER
from tests.contract.world import HOUR, World


async def test_what_several_rules_let_go_is_counted_once_whoever_it_belongs_to(
    world: World, engine: Engine
) -> None:
    asks = [
        Ask(type="x", tenant=tenant, queue=queue)
        for tenant in ("", "a", "b")
        for queue in ("one", "two")
    ]
    for made in await engine.enqueue([*asks, *asks], USER):
        await engine.operators.cancel(key_of(made.job), USER)  # type: ignore[union-attr]
    await engine.enqueue(asks, USER)
    world.clock.move(HOUR)
    rules = [
        Retention("cancelled", world.now, "a"),
        Retention("cancelled", world.now, None, "one"),
        Retention("cancelled", world.now, "b", "one"),
        Retention("cancelled", 1),
        Retention("completed", world.now),
    ]
    forgetting = Forgetting(engine.store)
    assert (await forgetting.foresee(rules)).jobs == 8
    assert (await forgetting.forget(rules)).jobs == 8
    assert (await forgetting.foresee(rules)).jobs == 0
