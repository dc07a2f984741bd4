"""Commits a step: plain units in one statement, others after a look at what is stored."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

from asyncpg.exceptions import LockNotAvailableError
from msgspec.structs import replace

from detent.errors import StoreBusy
from detent.lifecycle.profile import PROFILES, CancelMode
from detent.stores import api
from detent.stores.api import Claimed, Outcome, Stepped, Stored, Unit, Want
from detent.stores.births import Births
from detent.stores.legal import is_grantable
from detent.stores.postgres import arrays, bearing, claiming, granting, writing
from detent.stores.postgres.connection import LOCK_MS, Connection, Row
from detent.stores.postgres.ends import joined
from detent.stores.postgres.faults import UNFIT
from detent.stores.postgres.lanes import Lanes
from detent.stores.postgres.listening import Word
from detent.stores.postgres.marks import NO_MARKS, Position
from detent.stores.postgres.sorting import Batch

_WITH_CLAIM: Final = {
    "end": "end_and_claim",
    "end_richly": "end_richly_and_claim",
    "move": "step",
    "report": "report_and_claim",
    "report_richly": "report_richly_and_claim",
}
"""The same statement with a claim in it."""
_GLANCE_MS: Final = 100
"""How long one unit waits for a lock that it did not get together with the others."""


class Step:
    """One step: its units, its wish, and the time it was asked at."""

    def __init__(
        self,
        lanes: Lanes,
        batch: Batch,
        want: Want | None,
        now: int,
        marks: Mapping[str, Sequence[Any]] = NO_MARKS,
    ) -> None:
        self._known = lanes
        self._lanes = lanes
        self._batch = batch
        self._want = want
        # Asked once: all leases are looked through.
        self._grantable = want if want is not None and is_grantable(want) else None
        self._now = now
        self._marks = marks
        self._lanes_of: Sequence[int] = ()
        self._taken: Sequence[Stored] = ()
        self.took_s = 0.0
        self.is_short = False
        """Whether it may have left something that could have been claimed."""
        self.is_limited: bool | None = None
        self.has_opened = False
        self.word: Word | None = None
        """Word for the other processes, if it may be sent along."""
        self.has_told = False
        self._tries = 0

    @property
    def reached(self) -> tuple[tuple[int, Position], ...]:
        """How far a statement that claims has come in each lane: to the last that it took there."""
        last = dict(zip(self._lanes_of, self._taken, strict=True))
        jobs = ((lane, stored.job) for lane, stored in last.items())
        return tuple((lane, Position(~job.priority, job.place or 0, job.id)) for lane, job in jobs)

    async def run(self, connection: Connection) -> Stepped:
        """The answers, when everything is durable.

        Run again after the connection was lost, it may find that all was committed the first time.
        """
        self._tries += 1
        self._lanes = await self._known.of(connection, self._batch.lanes)
        stepped = await self._run(connection)
        if self._tries == 1:
            return stepped
        told = (api.Committed() if one == api.Own() else one for one in stepped.outcomes)
        return replace(stepped, outcomes=tuple(told))

    async def _run(self, connection: Connection) -> Stepped:
        batch = self._batch
        if not batch.units:
            return Stepped((), await self._claim(connection))
        try:
            if batch.news or (batch.born and self._want is None):
                return await self._push(connection)
            if batch.moves and self._want is None:
                return await self._move(connection)
            if batch.fusable and _is_plain(self._grantable):
                return await self._move_and_claim(connection, self._grantable)
        except UNFIT:
            # Nothing was committed. One unit is at fault: judged first, the others are not hurt.
            pass
        except LockNotAvailableError:
            return await self._one_by_one(connection)
        try:
            return await self._carefully(connection)
        except LockNotAvailableError:
            return await self._one_by_one(connection)

    # --- claims ---------------------------------------------------------------------------------

    async def _claim(self, connection: Connection, *, is_inside: bool = False) -> Claimed:
        """By one statement if that can do it; `is_inside` a transaction that has only new jobs."""
        want = self._grantable
        if want is None:
            return Claimed()
        if _is_plain(want):
            told = claiming.asked(want, self._now, self._marks)
            rows = await self._timed(connection, "claim", told)
            answer, claimed = self._read(rows, 0)
            if not self._leaves_it(answer):
                return await self._completed(connection, want, answer, claimed)
        return await self._with_care(connection, want, is_inside)

    async def _timed(
        self, connection: Connection, statement: str, told: dict[str, Any]
    ) -> list[Row]:
        """The rows of a statement that claims, and how long it took by itself."""
        begun_at = time.monotonic()
        rows = await connection.fetch(statement, **told)
        self.took_s = time.monotonic() - begun_at
        return rows

    def _read(self, rows: list[Row], start: int) -> tuple[claiming.Answer, Claimed]:
        """What such a statement says."""
        answer, claimed = claiming.read(rows, start)
        self._lanes_of, self._taken = answer.lanes, claimed.jobs
        return answer, claimed

    def _leaves_it(self, answer: claiming.Answer) -> bool:
        """Whether the statement took nothing because there is more to be asked."""
        self.is_limited = answer.is_limited
        return answer.claims and answer.needs_care and not answer.is_again

    async def _completed(
        self, connection: Connection, want: Want, answer: claiming.Answer, claimed: Claimed
    ) -> Claimed:
        if answer.claims and answer.is_again:
            return Claimed(await claiming.claimed_before(connection, want) or ())
        self.is_short = answer.has_missed or bool(self._marks["mark_lanes"])
        if answer.rich:
            return await claiming.with_asides(connection, claimed, answer.rich)
        return claimed

    async def _with_care(self, connection: Connection, want: Want, is_inside: bool) -> Claimed:
        if not is_inside:
            async with connection.transaction():
                return await self._with_care(connection, want, is_inside=True)
        await granting.lock(connection, want)
        return await granting.grant(connection, want, self._now)

    # --- with questions -------------------------------------------------------------------------

    async def _carefully(self, connection: Connection) -> Stepped:
        """Every unit is judged before it is written, all in one transaction."""
        try:
            return await self._asked_first(connection, is_bold=True)
        except UNFIT:
            # Somebody was faster, or the database knows better: whom it hurts is found out.
            return await self._asked_first(connection, is_bold=False)

    async def _asked_first(self, connection: Connection, *, is_bold: bool) -> Stepped:
        want = self._grantable
        async with connection.transaction():
            if self._batch.keyed:
                # Also behind a pooler, which takes no settings at connecting.
                await connection.fetch("lock_timeout", milliseconds=str(LOCK_MS))
            if want is not None:
                await granting.lock(connection, want)
            written = await self._judged(connection, self._batch.units, is_bold=is_bold)
            claimed = Claimed()
            if want is not None:
                claimed = await granting.grant(connection, want, self._now, written.locked)
        return Stepped(tuple(written.outcomes), claimed)

    async def _one_by_one(self, connection: Connection) -> Stepped:
        """Somebody's open transaction is in the way of a unit: the others go on without it."""
        outcomes: list[Outcome] = []
        blocked: list[str] = []
        for unit in self._batch.units:
            try:
                async with connection.transaction():
                    # All of them have waited together already.
                    await connection.fetch("lock_timeout", milliseconds=str(_GLANCE_MS))
                    outcomes += (await self._judged(connection, [unit])).outcomes
            except LockNotAvailableError:
                blocked.append(unit.command_id)
        if blocked:
            why = f"Somebody's open transaction holds what {len(blocked)} units of this step need"
            raise StoreBusy(f"{why}; all others are committed", blocked=tuple(blocked))
        try:
            claimed = await self._claim(connection)
        except LockNotAvailableError:
            # Its units are committed, which must be heard; whoever gets nothing comes again.
            claimed = Claimed()
        return Stepped(tuple(outcomes), claimed)

    async def _judged(
        self, connection: Connection, units: Sequence[Unit], *, is_bold: bool = False
    ) -> writing.Written:
        written = await writing.commit(connection, self._lanes, units, self._now, is_bold=is_bold)
        self.has_opened |= written.has_opened
        return written

    # --- at once ------------------------------------------------------------------------------

    async def _push(self, connection: Connection) -> Stepped:
        """New jobs, and a claim after them that sees them."""
        if self._want is None:
            await self._send_news(connection)
            return self._all_committed(Claimed())
        async with connection.transaction():
            await self._send_news(connection)
            claimed = await self._claim(connection, is_inside=True)
        return self._all_committed(claimed)

    async def _send_news(self, connection: Connection) -> None:
        units, born = self._batch.units, self._batch.born
        if born is not None and isinstance(units, Births):
            if len(units) == 1:
                await self._send_one(connection, bearing.lone(units, born, self._lanes[born.lane]))
            else:
                await connection.fetch("births", **bearing.asked(units, born, self._lanes))
            return
        news = [new for unit in self._batch.units for new in unit.new]
        if self._batch.fresh and len(news) == 1 and not news[0].body.tags:
            await self._send_one(connection, arrays.lone_of(news[0], self._lanes))
            return
        if self._batch.fresh:
            told = arrays.fresh_of(news, self._lanes)
            await connection.fetch("enqueue_tagged" if told["tag_ids"] else "enqueue", **told)
            return
        told = arrays.news_of(news, self._lanes)
        events = arrays.recorded(event for new in news for event in new.events)
        await connection.fetch("push", **told, **events, now=self._now)

    async def _send_one(self, connection: Connection, values: list[Any]) -> None:
        """By a statement that sends word along, so that nobody waits for a second one."""
        if self.word is None or self._want is not None:
            await connection.send("enqueue_one", values)
            return
        await connection.send("enqueue_one_and_tell", [*values, self.word.name])
        self.has_told = True

    def _all_committed(self, claimed: Claimed) -> Stepped:
        return Stepped((api.Committed(),) * len(self._batch.units), claimed)

    async def _move(self, connection: Connection) -> Stepped:
        statement, told = self._told_moves()
        rows = await connection.fetch(statement, **told)
        held = self._held([number for (number,) in rows])
        return Stepped(await self._answers(connection, held))

    async def _move_and_claim(self, connection: Connection, want: Want) -> Stepped:
        statement, moves = self._told_moves()
        told = {**moves, **claiming.asked(want, self._now, self._marks)}
        rows = await self._timed(connection, _WITH_CLAIM[statement], told)
        answer, claimed = self._read(rows, 1)
        everything = range(len(self._batch.units))
        held = set(everything) if rows[0][0] is None else self._held(rows[0][0])
        outcomes = await self._answers(connection, held)
        if len(held) < len(outcomes):
            # Whoever was refused hears how things stood before the claim, so that waited.
            return Stepped(outcomes, await self._claim(connection))
        if self._leaves_it(answer):
            return Stepped(outcomes, await self._with_care(connection, want, is_inside=False))
        return Stepped(outcomes, await self._completed(connection, want, answer, claimed))

    def _held(self, numbers: Sequence[int]) -> set[int]:
        """The units that these numbers of the statement mean."""
        ends = self._batch.ends
        return set(numbers) if ends is None else {ends.order[number - 1] for number in numbers}

    def _told_moves(self) -> tuple[str, dict[str, Any]]:
        """The statement that writes these moves, and what it is told."""
        if (ends := self._batch.ends) is not None:
            return "end_richly" if ends.is_rich else "end", ends.told
        moves = [(number, unit.moves[0]) for number, unit in enumerate(self._batch.units)]
        asides = arrays.asides_of(moves)
        if self._batch.reports:
            is_rich = any(asides[name] for name in ("results", "failure_numbers", "line_numbers"))
            told = arrays.reports_of(moves)
            return ("report_richly", told | asides) if is_rich else ("report", told)
        told = {**arrays.moves_of(moves, {}, ()), **arrays.events_of(moves)}
        return "move", {**told, **asides, "now": self._now}

    async def _answers(self, connection: Connection, held: set[int]) -> tuple[Outcome, ...]:
        """Those that a fence refused are asked about; all others are durable already."""
        units = self._batch.units
        if len(held) == len(units):
            return (api.Committed(),) * len(units)
        missed = [unit for number, unit in enumerate(units) if number not in held]
        async with connection.transaction():
            judged = iter((await self._judged(connection, missed)).outcomes)
        return tuple(api.Committed() if n in held else next(judged) for n in range(len(units)))


def _is_plain(want: Want | None) -> TypeGuard[Want]:
    """Whether a statement can grant this wish, as far as it tells itself."""
    if want is None or want.fair is not None or _is_of_workflows(want):
        return False
    return joined(want.leases) is not None


def _is_of_workflows(want: Want) -> bool:
    """Whether all that it could be granted belongs to workflows, which a statement leaves alone."""
    through = CancelMode.THROUGH_WORKFLOW
    return bool(want.profiles) and all(
        one in PROFILES and PROFILES[one].cancel is through for one in want.profiles or ()
    )
