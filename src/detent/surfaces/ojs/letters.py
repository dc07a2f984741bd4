"""Dead letters: jobs that were discarded and are kept for somebody to look at, or to run again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.commands import Change
from detent.engine.enqueueing import Ask
from detent.engine.rerunning import rerun_ask
from detent.lifecycle import job as j
from detent.lifecycle.job.table import Cause
from detent.lifecycle.machine import Refusal
from detent.lifecycle.retry import Exhaustion
from detent.stores.api import Key, Stored, key_of
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.desk import Desk, fields_of, page_of, pages, read_body
from detent.surfaces.ojs.envelope import shown
from detent.surfaces.ojs.faults import invalid, missing, of_refusal
from detent.surfaces.ojs.policies import retry_of
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.wire import instant, told

__all__ = ["Letters"]

SEEN_MAX: Final = 10_000
"""How many discarded jobs are looked at, newest first, to find dead letters among them."""
_BY_ATTEMPTS = frozenset({Cause.EXHAUSTED, Cause.NOT_RETRYABLE, Cause.POISON})
_PAGE = 1_000


class _Chosen(msgspec.Struct, frozen=True):
    queue: str | None = None
    type: str | None = None
    since: str | None = None
    error_type: str | None = None


class _Many(msgspec.Struct, frozen=True):
    filter: _Chosen = _Chosen()
    confirm: bool = False


class Letters:
    """The operations on dead letters."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def listed(self, call: Call) -> Reply:
        """Dead letters, newest first, each with all its errors."""
        limit, offset = page_of(call)
        found = await self.listed_all(call)
        jobs = [shown(one, name) for name, one in found[offset : offset + limit]]
        return self._desk.reply({"jobs": jobs, "pagination": pages(len(found), limit, offset)})

    async def get(self, call: Call) -> Reply:
        """One of them."""
        name = call.param("id")
        return self._desk.reply({"job": shown(await self._letter(call, name), name)})

    async def retry(self, call: Call) -> Reply:
        """Run one again, under its id; `override` changes its queue, metadata or retry policy."""
        name = call.param("id")
        stored = await self._letter(call, name)
        again = await self._rerun(call, name, self._override(call, stored))
        return self._desk.reply({"job": shown(again, name)})

    async def delete(self, call: Call) -> Reply:
        """Erase one; its history stays."""
        name = call.param("id")
        await self.erase(call, [(name, await self._letter(call, name))])
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
        found = [one for _, one in await self.found(call, _Chosen())]
        ends = sorted(one.job.ended_at or 0 for one in found)
        told_of: dict[str, Any] = {
            "total": len(found),
            "by_queue": Counter(one.job.queue for one in found),
            "by_error_type": Counter(_error_type(one) for one in found),
            "retention": {"max_entries": SEEN_MAX},
        }
        if ends:
            told_of |= {"oldest_at": told(ends[0]), "newest_at": told(ends[-1])}
        return self._desk.reply(told_of)

    # --- for others -----------------------------------------------------------------------------

    async def listed_all(self, call: Call) -> Sequence[tuple[str, Stored]]:
        """All dead letters that the caller may see."""
        return await self.found(call, _Chosen(queue=call.query.get("queue") or None))

    async def found(self, call: Call, chosen: _Chosen) -> Sequence[tuple[str, Stored]]:
        """The dead letters that fit, by the ids they are shown under."""
        tenant, since = self._desk.tenant(call), None
        if chosen.since is not None:
            since = instant("since", chosen.since, self._desk.now())[0]
        fitting = Filter(tenant=tenant, queue=chosen.queue, state="discarded", type=chosen.type)
        some: list[Stored] = []
        after: Key | None = None
        for _ in range(SEEN_MAX // _PAGE):
            page = await self._desk.engine.store.find(fitting, Page(_PAGE, after))
            some += [one for one in page if is_letter(one) and _fits(one, chosen, since)]
            if len(page) < _PAGE:
                break
            after = key_of(page[-1].job)
        mine = [one for one in some if call.who.may_use(one.job.queue)]
        return await self._newest(mine)

    async def _newest(self, some: Sequence[Stored]) -> list[tuple[str, Stored]]:
        """Those that nobody has run again since."""
        names = await self._desk.engine.aliases.shown([one.job for one in some])
        keys = [(one.job.tenant, name) for one, name in zip(some, names, strict=True)]
        newest = await self._desk.engine.aliases.newest(keys)
        return [
            (name, one)
            for name, one, key in zip(names, some, newest, strict=True)
            if key == key_of(one.job)
        ]

    async def erase(self, call: Call, found: Sequence[tuple[str, Stored]]) -> None:
        """Leave nothing of them but their histories."""
        by = self._desk.by(call)
        changes = [Change(key_of(one.job), j.Erase(), by) for _, one in found]
        await self._desk.engine.carry_out(changes)

    async def rerun(self, call: Call, name: str) -> Stored:
        """Run an ended job again under its id."""
        return await self._rerun(call, name, None)

    # --- inside ---------------------------------------------------------------------------------

    async def _letter(self, call: Call, name: str) -> Stored:
        stored = await self._desk.stored(call, name)
        if not is_letter(stored):
            raise missing("dead letter", name)
        return stored

    async def _rerun(self, call: Call, name: str, change: Ask | None) -> Stored:
        key = (self._desk.tenant(call), name)
        why = "retried from the dead letters"
        made = await self._desk.engine.aliases.rerun(key, self._desk.by(call), why, change)
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
            self._desk.need_queue(call, ask.queue)
        if given.get("retry") is not None:
            ask = replace(ask, retry=retry_of(given["retry"]))
        if given.get("meta"):
            old = msgspec.json.decode(ask.meta, type=dict[str, Raw])
            meta = msgspec.json.encode({**old, **given["meta"]}).decode()
            ask = replace(ask, meta=meta)
        return ask

    async def _confirmed(self, call: Call) -> Sequence[tuple[str, Stored]]:
        asked = read_body(call, _Many)
        if not asked.confirm:
            raise invalid("confirm must be true: this is about many jobs", field="confirm")
        return await self.found(call, asked.filter)


def is_letter(stored: Stored) -> bool:
    """Discarded because no attempt was left, and to be kept; or because its handler said so."""
    job = stored.job
    if job.state != "discarded" or job.erased_at is not None:
        return False
    kept = stored.body.retry.on_exhaustion is Exhaustion.DEAD_LETTER
    return job.cause == Cause.DEAD_LETTER_ASKED or (kept and job.cause in _BY_ATTEMPTS)


def _error_type(stored: Stored) -> str:
    last = stored.failures[-1] if stored.failures else None
    return "unknown" if last is None else last.type or last.code


def _fits(stored: Stored, chosen: _Chosen, since: int | None) -> bool:
    is_late = since is None or (stored.job.ended_at or 0) >= since
    return is_late and chosen.error_type in (None, _error_type(stored))
