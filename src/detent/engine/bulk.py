"""The same verb to every job that fits a filter: first foreseen, then done, in bounded batches.

A dry run decides exactly as the real one and commits nothing. The real one walks from the newest
job to the oldest, so jobs that it makes itself (a rerun) are never met again, and one that is
broken off can be started anew: what is done already is then unchanged, refused or no longer found.
Only that a job was run again once already is known to the real one alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from detent.engine.enqueueing import Clash, Enqueued
from detent.engine.operators import Operators
from detent.engine.verbs import Verb
from detent.errors import BadOption
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.stores.api import Store, Stored, key_of
from detent.stores.select import Filter, Page

BATCH = 200
"""How many jobs are changed at a time; others get their turn in between."""
SAMPLE_MAX = 10
"""How many ids of each kind are named: enough to look some of them up."""
_FINE = ("accepted", "unchanged")


class Effects(msgspec.Struct, frozen=True):
    """What became of the jobs, or would: by the code of the refusal where there was one."""

    seen: int = 0
    accepted: int = 0
    unchanged: int = 0
    refused: dict[str, int] = {}
    examples: dict[str, tuple[str, ...]] = {}
    made: tuple[str, ...] = ()


Watch = Callable[[Effects], None]


class Bulk:
    """Applies verbs to many jobs."""

    def __init__(self, store: Store, operators: Operators) -> None:
        self._store = store
        self._operators = operators

    async def apply(
        self,
        verb: Verb,
        chosen: Filter,
        by: By,
        reason: str | None = None,
        *,
        dry_run: bool,
        limit: int | None = None,
        watch: Watch | None = None,
    ) -> Effects:
        """The effects on all jobs that fit, or on the newest `limit` of them."""
        need_narrow(chosen)
        effects, after = Effects(), None
        while limit is None or effects.seen < limit:
            size = BATCH if limit is None else min(BATCH, limit - effects.seen)
            found = await self._store.find(chosen, Page(size, after))
            if not found:
                break
            answers = await self._answers(verb, found, by, reason, dry_run)
            for stored, answer in zip(found, answers, strict=True):
                effects = _with(effects, stored, answer)
            after = key_of(found[-1].job)
            if watch is not None:
                watch(effects)
        return effects

    async def _answers(
        self, verb: Verb, found: Sequence[Stored], by: By, reason: str | None, dry_run: bool
    ) -> list[j.Answer | Enqueued | Clash]:
        if dry_run:
            return self._operators.foresee(verb, found, by, reason)
        return await self._operators.apply(verb, [key_of(one.job) for one in found], by, reason)


def need_narrow(chosen: Filter) -> None:
    """A filter that says nothing but whose jobs would change every job there is."""
    told = msgspec.structs.asdict(chosen)
    if not any(value is not None for name, value in told.items() if name != "tenant"):
        why = "A change of many jobs needs to say which: by state, queue, type, tag or workflow"
        raise BadOption(why, option="filter")


def _with(effects: Effects, stored: Stored, answer: j.Answer | Enqueued | Clash) -> Effects:
    """One more job; only counts and a few examples are kept, however many there are."""
    word, refused = _word(answer), effects.refused
    if word not in _FINE:
        refused = {**refused, word: refused.get(word, 0) + 1}
    some = (*effects.examples.get(word, ()), stored.job.id)[:SAMPLE_MAX]
    new = (answer.job.id,) if isinstance(answer, Enqueued) else ()
    return Effects(
        effects.seen + 1,
        effects.accepted + (word == "accepted"),
        effects.unchanged + (word == "unchanged"),
        refused,
        {**effects.examples, word: some},
        (*effects.made, *new)[:SAMPLE_MAX],
    )


def _word(answer: j.Answer | Enqueued | Clash) -> str:
    """What became of a job in one word."""
    match answer:
        case j.Accepted() | Enqueued(is_new=True):
            return "accepted"
        case j.Unchanged() | Enqueued():
            return "unchanged"
        case Clash(what=what):
            return f"{what}_taken"
        case Refusal(code=code):
            return code
