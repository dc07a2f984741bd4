"""The face on PostgreSQL: one life from end to end, over a pool of the loop of the bridge."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from detent import Context, Detent, Limit
from tests.postgres.server import databases


@pytest.mark.slow
def test_one_life_from_end_to_end(tmp_path: Path) -> None:
    with Detent(databases().of(tmp_path)) as app:

        @app.job(queue="q", retry=1, limit=Limit(concurrency=1), unique=True)
        async def work(ctx: Context, number: int) -> list[int]:
            ctx.log("working")
            ctx.progress(50)
            await ctx.asave(number)
            return [number]

        first = work.enqueue(1)
        assert asyncio.run(work.aenqueue(1)).id == first.id
        many = work.enqueue_many(work.bind(n) for n in range(2, 20))
        waiting = app.select(type="work", state="available")
        ids = [found.id for found in waiting]
        assert ids == sorted([one.id for one in [first, *many]], reverse=True)
        assert waiting.count() == app.select(queue="q").count() == 19
        assert len(app.drain()) == 19
        assert {found.seen.state for found in app.select()} == {"completed"}
        assert [handle.result(timeout=5) for handle in [first, *many]] == [
            [n] for n in range(1, 20)
        ]
        assert [line.text for line in first.logs(follow=True)] == ["working"]
        names = [event.name for event in first.history()]
        assert names == ["enqueue", "claim", "checkpointed", "complete"]
