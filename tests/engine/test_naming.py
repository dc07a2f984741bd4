"""The beginning of an id means the one job whose id begins so, on every store."""

from __future__ import annotations

import pytest

from detent.engine.engine import Engine
from detent.engine.naming import meant
from detent.errors import AmbiguousId
from tests.engine.working import push

ONE, TWO = "01999999-aaaa-7000-8000-000000000001", "01999999-bbbb-7000-8000-000000000002"


async def test_a_beginning_that_only_one_has_means_it(engine: Engine) -> None:
    await push(engine, id=ONE)
    await push(engine, id=TWO)
    for begin in (ONE, ONE[:-1], ONE[:10]):
        assert await meant(engine.store, ("", begin)) == ("", ONE)
    assert await meant(engine.store, ("", TWO[:10])) == ("", TWO)


async def test_one_that_several_have_names_them(engine: Engine) -> None:
    await push(engine, id=ONE, type="a")
    await push(engine, id=TWO, type="b")
    with pytest.raises(AmbiguousId) as caught:
        await meant(engine.store, ("", ONE[:8]))
    assert caught.value.fields["ids"] == (ONE, TWO)
    assert f"{ONE} (a, available), {TWO} (b, available). Give more of it" in str(caught.value)


async def test_of_many_only_some_are_named(engine: Engine) -> None:
    for number in range(7):
        await push(engine, id=f"{ONE[:-1]}{number}")
    with pytest.raises(AmbiguousId, match="and more"):
        await meant(engine.store, ("", ONE[:-1]))


async def test_a_whole_id_means_that_job_also_if_others_begin_with_it(engine: Engine) -> None:
    await push(engine, id="invoices-1")
    await push(engine, id="invoices-10")
    assert await meant(engine.store, ("", "invoices-1")) == ("", "invoices-1")


@pytest.mark.parametrize("begin", ["", "0199999", "01999999-c", "\0" * 9, "\ud800" * 9, "%_______"])
async def test_what_is_too_short_or_nobody_has_stays_as_it_is(engine: Engine, begin: str) -> None:
    await push(engine, id=ONE)
    assert await meant(engine.store, ("", begin)) == ("", begin)


async def test_a_job_of_another_tenant_is_not_meant(engine: Engine) -> None:
    await push(engine, id=ONE, tenant="acme")
    await push(engine, id=TWO, tenant="acne")
    assert await meant(engine.store, ("", ONE[:8])) == ("", ONE[:8])
    assert await meant(engine.store, ("acme", ONE[:8])) == ("acme", ONE)
