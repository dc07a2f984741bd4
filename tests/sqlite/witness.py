"""What a process has acknowledged, told to us and not to the store, and what must be there."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

from detent import stores
from detent.lifecycle.job import Job
from detent.stores.api import Store
from detent.stores.select import Page
from tests.sqlite.processes import url_of


class Witness:
    """Hears what `tests.sqlite.toil` says, whoever is dead by then."""

    def __init__(self) -> None:
        self.stays: set[str] = set()
        self.completed: set[str] = set()
        self.counted: dict[str, int] = {}
        self.kinds: Counter[str] = Counter()

    def hear(self, line: dict[str, Any]) -> None:
        """One line of somebody who may be dead by now."""
        for kind in ("pushed", "flowed", "bore"):
            self.stays |= set(line.get(kind, []))
        self.completed |= set(line.get("completed", []))
        self.counted |= line.get("counted", {})
        self.kinds.update(name for name, value in line.items() if value)

    def check(self, path: Path) -> None:
        """All that was acknowledged is there, and nothing by half."""
        self.check_at(url_of(path))

    def check_at(self, url: str) -> None:
        """The same for a store at any address."""
        asyncio.run(_check(url, self))


async def _jobs_in(store: Store) -> dict[str, Job]:
    keys = await store.keys(limit=100_000)
    return {one.job.id: one.job for one in await store.get(keys) if one is not None}


async def _check(url: str, witness: Witness) -> None:
    async with stores.open(url) as store:
        jobs = await _jobs_in(store)
        assert witness.stays <= jobs.keys(), "acknowledged, then gone"
        done = witness.completed & witness.stays
        assert {jobs[one].state for one in done} <= {"completed"}
        # Of those that are let go one may go before the other.
        stay = [x for x in jobs.values() if x.workflow is None and x.queue == "default"]
        pairs = Counter(x.id[:-2] for x in stay)
        assert set(pairs.values()) <= {2}, "half a pair was committed"
        flows = {one.id for one in await store.find_workflows(page=Page(10_000))}
        members = Counter(x.workflow for x in jobs.values() if x.workflow)
        assert members == dict.fromkeys(flows, 4), "a workflow lacks jobs"
        assert {one.id for one in await store.records("flow")} == flows, "or its small record"
        counts = {one.id: one.version for one in await store.records("count")}
        assert all(counts[name] >= count for name, count in witness.counted.items())
