"""Rules by which dead letters run again by themselves, so often and after so long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.rerunning import rerun_ask
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import Record
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.dead_letters import Chosen, Letter, Letters
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.setting import Setting
from detent.surfaces.ojs.wire import instant, span

KIND: Final = "ojs-replay"
COUNT: Final = "ojs.replay_count"
"""Where in its metadata a job says how often it was run again by a rule."""
_RULES_MAX: Final = 100
_TURN_MAX: Final = 1_000


class _Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Which dead letters, how long after their end, how often at most, and whether at all."""

    name: str = ""
    filter: Chosen = Chosen()
    delay: str = "PT0S"
    max_replays: int = 1
    enabled: bool = True


class Replaying:
    """The operations on such rules, and what follows from them."""

    def __init__(self, desk: Desk, setting: Setting, letters: Letters) -> None:
        self._desk = desk
        self._setting = setting
        self._letters = letters

    async def put(self, call: Call) -> Reply:
        """A rule, or another one of that name."""
        rule = replace(read_body(call, _Rule), name=need_queue(call.param("name")))
        self._need_sound(call, rule)
        tenant = self._desk.tenant(call)
        known = {one.name for one in await self._rules(tenant)}
        if rule.name not in known and len(known) >= _RULES_MAX:
            raise invalid(f"there are at most {_RULES_MAX} rules", field="name")
        text = msgspec.json.encode(rule).decode()
        await self._desk.change(KIND, (tenant, rule.name), lambda _: (text, None))
        return self._desk.reply({"rule": rule}, 200 if rule.name in known else 201)

    async def listed(self, call: Call) -> Reply:
        """All rules, by name."""
        return self._desk.reply({"rules": await self._rules(self._desk.tenant(call))})

    async def delete(self, call: Call) -> Reply:
        """Run nothing again by this rule."""
        key = (self._desk.tenant(call), call.param("name"))
        if await self._desk.record(KIND, key) is None:
            raise missing("replay rule", key[1])
        await self._desk.change(KIND, key, lambda _: (None, None))
        return self._desk.reply({"deleted": True, "name": key[1]})

    async def turn(self, tenant: str) -> int:
        """Run again what is due by some rule; how many went."""
        done = 0
        for rule in await self._rules(tenant):
            if rule.enabled:
                done += await self._followed(tenant, rule)
        return done

    async def _followed(self, tenant: str, rule: _Rule) -> int:
        due_at, done = self._desk.now() - span("delay", rule.delay), 0
        async for page in self._letters.pages(tenant, rule.filter):
            for letter in page:
                count = _count(letter)
                is_due = (letter.stored.job.ended_at or 0) <= due_at and count < rule.max_replays
                if is_due and done < _TURN_MAX:
                    done += await self._again(letter, rule, count + 1)
        return done

    async def _again(self, letter: Letter, rule: _Rule, count: int) -> bool:
        """Whether it runs again: somebody may be faster, and a queue may take no jobs."""
        job, by = letter.stored.job, By(Actor.SYSTEM, f"replay rule {rule.name}")
        config = await self._setting.known.get((job.tenant, job.queue))
        if config is not None and config.is_draining:
            return False
        ask = rerun_ask(letter.stored, f"replay {count} of {rule.max_replays}")
        meta = msgspec.json.decode(ask.meta, type=dict[str, Raw])
        told = msgspec.json.encode({**meta, COUNT: count}).decode()
        key, again = (job.tenant, letter.name), replace(ask, meta=told)
        made = await self._desk.engine.aliases.rerun(key, by, ask.reason or "", again)
        return not isinstance(made, Refusal)

    async def _rules(self, tenant: str) -> list[_Rule]:
        records = await self._desk.engine.store.records(KIND, tenant, limit=_RULES_MAX)
        return [_read(one) for one in records]

    def _need_sound(self, call: Call, rule: _Rule) -> None:
        if not 1 <= rule.max_replays <= _RULES_MAX:
            raise invalid(f"max_replays is from 1 to {_RULES_MAX}", field="max_replays")
        span("delay", rule.delay)
        if rule.filter.since is not None:
            instant("filter.since", rule.filter.since, self._desk.now())
        if rule.filter.queue is not None:
            self._desk.need_queue(call, need_queue(rule.filter.queue))
        elif call.who.queues != ("*",):
            raise invalid("this key is not for all queues: name one in filter", field="filter")


def _read(record: Record) -> _Rule:
    return msgspec.json.decode(record.data or "", type=_Rule)


def _count(letter: Letter) -> int:
    """How often a rule has run it again; others may write there whatever they like."""
    meta: Mapping[str, Any] = msgspec.json.decode(letter.stored.body.meta)
    found = meta.get(COUNT)
    return found if type(found) is int else 0
