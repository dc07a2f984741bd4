"""Dead letters: jobs that were discarded and are kept for somebody to look at, or to run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.commands import Change
from detent.engine.paging import job_pages
from detent.engine.rerunning import rerun_ask
from detent.lifecycle import job as j
from detent.lifecycle.dead_letters import is_letter
from detent.lifecycle.machine import Refusal
from detent.stores.api import Stored, key_of
from detent.stores.select import Filter, Only
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.desk import Desk, fields_of, page_of, pages, read_body
from detent.surfaces.ojs.envelope import shown
from detent.surfaces.ojs.faults import invalid, missing, of_refusal
from detent.surfaces.ojs.policies import retry_of
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.setting import Setting
from detent.surfaces.ojs.wire import instant, told

KEPT_MAX: Final = 10_000
"""How many dead letters of a tenant are kept, and listed; the oldest go first."""
_KEPT_DAYS: Final = 180
KEPT_US: Final = _KEPT_DAYS * 86_400 * 1_000_000
PAGE: Final = 1_000
PRUNED_BY: Final = "dead letter retention"
"""Who erases those that need not be kept any more."""


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which dead letters are meant."""

    queue: str | None = None
    type: str | None = None
    since: str | None = None
    error_type: str | None = None


class Letter(NamedTuple):
    """A dead letter and the id that it is shown under."""

    name: str
    stored: Stored


class _Many(msgspec.Struct, frozen=True):
    filter: Chosen = Chosen()
    confirm: bool = False


class Letters:
    """The operations on dead letters."""

    def __init__(self, desk: Desk, setting: Setting) -> None:
        self._desk = desk
        self._setting = setting

    async def listed(self, call: Call) -> Reply:
        """Dead letters, newest first, each with all its errors."""
        limit, offset = page_of(call)
        found = await self.listed_all(call)
        jobs = await self.shown(call, found[offset : offset + limit])
        return self._desk.reply({"jobs": jobs, "pagination": pages(len(found), limit, offset)})

    async def get(self, call: Call) -> Reply:
        """One of them."""
        name = call.param("id")
        [job] = await self.shown(call, [Letter(name, await self._letter(call, name))])
        return self._desk.reply({"job": job})

    async def retry(self, call: Call) -> Reply:
        """Run one again, under its id; `override` changes its queue, metadata or retry policy."""
        name = call.param("id")
        stored = await self._letter(call, name)
        again = await self._rerun(call, name, self._override(call, stored))
        return self._desk.reply({"job": shown(again, name)})

    async def delete(self, call: Call) -> Reply:
        """Erase one; its history stays."""
        name = call.param("id")
        await self.erase(call, [Letter(name, await self._letter(call, name))])
        return self._desk.reply({"deleted": True, "job_id": name})

    async def retry_many(self, call: Call) -> Reply:
        """Run all again that fit."""
        found = await self._confirmed(call)
        done = 0
        for name, _ in found:
            try:
                await self._rerun(call, name, None)
            except Problem:
                continue
            done += 1
        told_of = {"matched": len(found), "retried": done, "failed": len(found) - done}
        return self._desk.reply(told_of)

    async def purge(self, call: Call) -> Reply:
        """Erase all that fit."""
        found = await self._confirmed(call)
        await self.erase(call, found)
        return self._desk.reply({"deleted": len(found), "purged_count": len(found)})

    async def stats(self, call: Call) -> Reply:
        """How many there are, and of what."""
        found = [one for _, one in await self.found(call, Chosen())]
        ends = sorted(one.job.ended_at or 0 for one in found)
        told_of: dict[str, Any] = {
            "total": len(found),
            "by_queue": Counter(one.job.queue for one in found),
            "by_error_type": Counter(_error_type(one) for one in found),
            "retention": {"max_age": f"P{_KEPT_DAYS}D", "max_entries": KEPT_MAX},
        }
        if ends:
            told_of |= {"oldest_at": told(ends[0]), "newest_at": told(ends[-1])}
        return self._desk.reply(told_of)

    # --- for others -----------------------------------------------------------------------------

    async def listed_all(self, call: Call) -> Sequence[Letter]:
        """All dead letters that the caller may see."""
        return await self.found(call, Chosen(queue=call.query.get("queue") or None))

    async def shown(self, call: Call, letters: Sequence[Letter]) -> list[dict[str, Any]]:
        """Their envelopes, each with the name of the list that its queue has for them."""
        told_of, tenant = list[dict[str, Any]](), call.caller.tenant
        for name, one in letters:
            config = await self._setting.known.get((tenant, one.job.queue))
            named = None if config is None else config.dead_letters
            more = {} if named is None else {"dead_letter_queue": named}
            told_of.append({**shown(one, name), **more})
        return told_of

    async def found(self, call: Call, chosen: Chosen) -> Sequence[Letter]:
        """The dead letters that fit and that the caller may see, newest first."""
        found: list[Letter] = []
        async for page in self.pages(call.caller.tenant, chosen):
            found += [one for one in page if call.caller.may_use(one.stored.job.queue)]
            if len(found) >= KEPT_MAX:
                break
        return found[:KEPT_MAX]

    async def pages(self, tenant: str, chosen: Chosen) -> AsyncIterator[list[Letter]]:
        """All that fit, newest first, a page at a time."""
        since = None
        if chosen.since is not None:
            since = instant("since", chosen.since, self._desk.now())[0]
        queues, queue = await self._setting.letting(tenant, chosen.queue), chosen.queue
        fitting = Filter(tenant=tenant, state="discarded", type=chosen.type, only=Only.LETTERS)
        if queues is None:
            fitting = replace(fitting, queue=queue)
        async for page in job_pages(self._desk.engine.store, fitting, PAGE):
            mine = [
                one
                for one in page
                if queues is None or one.job.queue == queue or queues(one.job.queue) == queue
            ]
            yield await self.newest([one for one in mine if _fits(one, chosen, since)])

    async def newest(self, some: Sequence[Stored]) -> list[Letter]:
        """Those that nobody has run again since."""
        names = await self._desk.engine.aliases.shown([one.job for one in some])
        keys = [(one.job.tenant, name) for one, name in zip(some, names, strict=True)]
        newest = await self._desk.engine.aliases.newest(keys)
        return [
            Letter(name, one)
            for name, one, key in zip(names, some, newest, strict=True)
            if key == key_of(one.job)
        ]

    async def erase(self, call: Call, found: Sequence[Letter]) -> None:
        """Leave nothing of them but their histories."""
        by = call.caller.actor
        changes = [Change(key_of(one.job), j.Erase(), by) for _, one in found]
        await self._desk.engine.carry_out(changes)

    async def rerun(self, call: Call, name: str) -> Stored:
        """Run an ended job again under its id."""
        return await self._rerun(call, name, None)

    # --- inside ---------------------------------------------------------------------------------

    async def _letter(self, call: Call, name: str) -> Stored:
        stored = await self._desk.stored(call, name)
        if not is_letter(stored.job, stored.body.retry):
            raise missing("dead letter", name)
        return stored

    async def _rerun(self, call: Call, name: str, change: Ask | None) -> Stored:
        key = (call.caller.tenant, name)
        why = "retried from the dead letters"
        queue = (await self._desk.stored(call, name)).job.queue if change is None else change.queue
        await self._setting.need_open(key[0], queue)
        made = await self._desk.engine.aliases.rerun(key, call.caller.actor, why, change)
        if isinstance(made, Refusal):
            raise of_refusal(made)
        return made

    def _override(self, call: Call, stored: Stored) -> Ask | None:
        raw = fields_of(call).get("override")
        if raw is None or bytes(raw) == b"null":
            return None
        given: Mapping[str, Any] = msgspec.json.decode(raw)
        if not isinstance(given, dict) or not isinstance(given.get("meta") or {}, dict):
            raise invalid("override and its meta must be objects", field="override")
        ask = rerun_ask(stored, "retried from the dead letters")
        if given.get("queue") is not None:
            ask = replace(ask, queue=need_queue(given["queue"]))
            call.caller.need_queue(ask.queue)
        if given.get("retry") is not None:
            ask = replace(ask, retry=retry_of(given["retry"]))
        if given.get("meta"):
            old = msgspec.json.decode(ask.meta, type=dict[str, Raw])
            meta = msgspec.json.encode({**old, **given["meta"]}).decode()
            ask = replace(ask, meta=meta)
        return ask

    async def _confirmed(self, call: Call) -> Sequence[Letter]:
        asked = read_body(call, _Many)
        if not asked.confirm:
            raise invalid("confirm must be true: this is about many jobs", field="confirm")
        return await self.found(call, asked.filter)


def _error_type(stored: Stored) -> str:
    last = stored.failures[-1] if stored.failures else None
    return "unknown" if last is None else last.type or last.code


def _fits(stored: Stored, chosen: Chosen, since: int | None) -> bool:
    is_late = since is None or (stored.job.ended_at or 0) >= since
    return is_late and chosen.error_type in (None, _error_type(stored))
