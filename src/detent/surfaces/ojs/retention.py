"""How long what has ended is kept: as is set about its queue; dead letters by a rule of their own.

One of all servers of a store sees to it, a minute after the last. What queues say is for jobs whose
events are sealed, as everywhere. Dead letters are no mere discards: what is set about a queue lets
them be, and they are erased after half a year, or when there are too many, the oldest first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import msgspec

from detent.engine.commands import Change
from detent.engine.forgetting import BATCH
from detent.engine.paging import job_pages
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.table import ENDED, JobState
from detent.lifecycle.machine import Actor
from detent.stores.api import Record, Retention, Stored, key_of
from detent.stores.select import Filter, Only
from detent.surfaces.ojs import dead_letters as dead
from detent.surfaces.ojs.configs import USUAL, Config
from detent.surfaces.ojs.dead_letters import Letters
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.setting import Setting

KIND: Final = "ojs-keeping"
ID: Final = "all"
_LETTERS_TURNS: Final = 60
"""Every how many turns dead letters are looked through."""
_PAUSE_S: Final = 0.05
_LONG: Final = 0.9
"""Clocks differ a little: whoever is nearly due is."""


class _Mark(msgspec.Struct, frozen=True):
    """When somebody last saw to it, and how often anybody did."""

    at: int = 0
    turns: int = 0


class Keeping:
    """Forgets ended jobs and dead letters by the rules of their queues."""

    def __init__(self, desk: Desk, setting: Setting, letters: Letters) -> None:
        self._desk = desk
        self._setting = setting
        self._letters = letters

    async def run(self) -> None:
        """See to it whenever it is our turn, until the server stops."""
        every_s = self._desk.settings.keep_s
        while await self._desk.service.pause(every_s):
            turns = await self._ours(every_s)
            if turns is not None:
                await self.turn(with_letters=turns % _LETTERS_TURNS == 1)

    async def turn(self, *, with_letters: bool) -> None:
        """Let go of what need not be kept, tenant by tenant."""
        ended: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        for one in await self._desk.engine.store.counts():
            if JobState(one.state) in ENDED:
                ended[one.tenant].add((one.queue, one.state))
        for tenant, found in ended.items():
            await self._forget(await self._rules(tenant, found))
            if with_letters and any(state == JobState.DISCARDED for _, state in found):
                await self._erase_letters(tenant)

    # --- what queues say ------------------------------------------------------------------------

    async def _rules(self, tenant: str, ended: set[tuple[str, str]]) -> list[Retention]:
        configs = await self._setting.configs(tenant)
        now, usual, rules = self._desk.now(), configs.get(USUAL, Config(0)), list[Retention]()
        for queue, state in sorted(ended):
            kept_us = configs.get(queue, Config(0)).over(usual).kept_us.get(state)
            if kept_us is not None:
                rules.append(Retention(state, now - kept_us, tenant, queue, letters=False))
        return rules

    async def _forget(self, rules: Sequence[Retention]) -> None:
        store = self._desk.engine.store
        while rules and await store.prune(rules, now=store.now(), limit=BATCH):
            if not await self._desk.service.pause(_PAUSE_S):
                return

    # --- dead letters ---------------------------------------------------------------------------

    async def _erase_letters(self, tenant: str) -> None:
        """Those that are too old, and of too many the oldest."""
        fitting = Filter(tenant=tenant, state="discarded", only=Only.LETTERS)
        before, seen = self._desk.now() - dead.KEPT_US, 0
        async for page in job_pages(self._desk.engine.store, fitting, dead.PAGE):
            listed = {key_of(one.stored.job) for one in await self._letters.newest(page)}
            gone: list[Stored] = []
            for one in page:
                seen += key_of(one.job) in listed
                if (one.job.ended_at or 0) < before or seen > dead.KEPT_MAX:
                    gone.append(one)
            await self._erased(gone)
            if gone and not await self._desk.service.pause(_PAUSE_S):
                return

    async def _erased(self, gone: Sequence[Stored]) -> None:
        by, why = By(Actor.SYSTEM, dead.PRUNED_BY), "too old, or one of too many"
        changes = [Change(key_of(one.job), j.Erase(), by, why) for one in gone]
        if changes:
            await self._desk.engine.carry_out(changes)

    # --- whose turn it is -----------------------------------------------------------------------

    async def _ours(self, every_s: float) -> int | None:
        """Which turn it is, if it is ours: one of all servers has it."""
        store = self._desk.engine.store
        [record] = await store.record([(KIND, "", ID)])
        data = None if record is None else record.data
        mark = _Mark() if data is None else msgspec.json.decode(data, type=_Mark)
        if 0 <= store.now() - mark.at < every_s * _LONG * 1e6:
            return None
        text = msgspec.json.encode(_Mark(store.now(), mark.turns + 1)).decode()
        version = 1 if record is None else record.version + 1
        is_ours = await self._desk.engine.put(Record(KIND, ID, version, text))
        return mark.turns + 1 if is_ours else None
