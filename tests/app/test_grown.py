"""The face on PostgreSQL: what its other tests show on stores without a server holds there too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from detent import Context, Detent, batch, stages
from detent.engine.verify import Verification
from detent.testing import VirtualClock
from tests.postgres.server import databases


@pytest.fixture
def grown(tmp_path: Path, clock: VirtualClock) -> Iterator[Detent]:
    """An app on a server, in whose store `detent verify` finds nothing when the test is done."""
    with Detent(databases().of(tmp_path), clock=clock) as app:
        yield app
        assert app.bridge.run(_findings(app)) == []


async def _findings(app: Detent) -> list[object]:
    store = (await app.engine()).store
    return [one async for one in Verification(store).findings()]


def test_workflows_schedules_and_followers(grown: Detent, clock: VirtualClock) -> None:
    app = grown

    @app.job
    def number(value: int) -> int:
        return value

    @app.job
    def total(ctx: Context) -> int:
        ctx.enqueue(number.bind(0))
        return sum(ctx.results())

    @app.schedule("@daily")
    @app.job
    def daily() -> None: ...

    steps = batch([number.bind(n) for n in range(5)], on_success=total.bind())
    sums, staged = app.start(steps), app.start(stages({"a": number.bind(1), "b": []}))
    app.drain()
    assert (sums.result(), staged.progress()) == ([10], 99)
    staged.add("b", [number.bind(2)])
    staged.pause()
    staged.resume("go on")
    app.drain()
    assert staged.result() == [2]
    clock.advance(timedelta(days=1))
    assert len(app.drain()) == 1
    assert app.start(steps).abort().state == "aborted"
    app.drain()
