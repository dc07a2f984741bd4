"""Jobs are pushed: each round asks the store for as many as the engines have room for.

Engines that take the same share it. The one with the most room left goes first and is given one,
the next one too, then two each, then four: so that few jobs are spread over all, and many cost few
commits. Nobody asks for jobs of a kind that was just found to be exhausted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from detent.engine.commands import Beside, Change
from detent.engine.keyless import Shut, is_keyless, put_off
from detent.engine.secrets import Owner
from detent.errors import SecretError
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.waking import limit_end
from detent.lifecycle.machine import Actor
from detent.lifecycle.views.facts import counted_attempt
from detent.stores.api import Claimed, Failure, Stored, Want, key_of
from detent.surfaces.engines.desk import ENGINE, Desk
from detent.surfaces.engines.links import Link, Links
from detent.surfaces.engines.messages import Drain
from detent.surfaces.engines.shown import payload_of

_log = logging.getLogger(__name__)

BATCH_MAX: Final = 200
"""Jobs that are dispatched in one commit."""
_WAIT_S: Final = 5.0
_BY = By(Actor.SYSTEM, "dispatch")


class Dispatching:
    """Gives jobs to the engines of this server."""

    def __init__(self, desk: Desk, links: Links) -> None:
        self._desk = desk
        self._links = links
        self._shut = Shut()

    async def run(self) -> None:
        """Round after round, until the server is to stop."""
        while not self._desk.service.stopping.is_set():
            self._links.bell.clear()
            wait_s, seen = await self._round()
            await self._pause(wait_s, seen)
        # At once: the sockets are closed in a moment.
        await self.drain()

    async def _round(self) -> tuple[float, int | None]:
        """Give what there is; how long to wait then, and what was seen by who found nothing."""
        tastes: defaultdict[object, list[Link]] = defaultdict(list)
        for link in self._links:
            if link.room and self._shut.left(link.taste[2]):
                tastes[link.taste].append(link)
        wait_s, seen = min(_WAIT_S, self._shut.opens_in_s()), list[int]()
        for links in tastes.values():
            last = await self._share(links)
            if last is None:
                continue
            seen.append(last.seen)
            if last.retry_at is not None:
                wait_s = min(wait_s, max(last.retry_at - self._desk.now(), 1_000) / 1e6)
        return wait_s, min(seen, default=None)

    async def _share(self, links: Sequence[Link]) -> Claimed | None:
        """To those who take the same, until there is nothing more or no room; the last answer."""
        share = BATCH_MAX if len(links) == 1 else 1
        while open_ := [link for link in links if link.room]:
            for link in sorted(open_, key=lambda one: one.room, reverse=True):
                if self._desk.service.stopping.is_set():
                    return None
                most = min(link.room, share, BATCH_MAX)
                claimed = await self._claim(link, most)
                if claimed.lost:
                    # Its row is gone; it is told so with its next beat, and asks for nothing more.
                    link.capacity = 0
                elif len(claimed.jobs) < most:
                    return claimed
            share *= 2
        return None

    async def _claim(self, link: Link, most: int) -> Claimed:
        new = self._desk.engine.identity.id
        tenant, queues, types = link.taste
        want = Want(
            command_id=new(),
            by=_BY,
            holder=link.holder,
            leases=tuple(new() for _ in range(most)),
            queues=queues,
            tenant=tenant,
            types=self._shut.left(types),
            push=True,
        )
        claimed = await self._desk.engine.claim(want)
        if not link.is_open or not link.capacity or self._desk.service.stopping.is_set():
            await self._desk.engine.engines.hand_back(claimed.jobs, "it could not be sent any more")
            return claimed
        for stored in claimed.jobs:
            self._links.hold(link, stored)
        for stored in claimed.jobs:
            await self._send(link, stored)
        return claimed

    async def _send(self, link: Link, stored: Stored) -> None:
        job, body = stored.job, stored.body
        try:
            owner = Owner(job.tenant, job.id, body.type)
            payload = self._desk.engine.secrets.opened(body.payload, owner).payload
        except SecretError as error:
            if is_keyless(error):
                await self._leave(link, stored, error)
            else:
                await self._spoil(link, stored, error.message)
            return
        self._shut.opened((body.type,))
        told = {
            "jobId": job.id,
            "jobType": body.type,
            "payload": payload_of(payload),
            "attempt": counted_attempt(job),
            "lease": job.lease,
            "deadlineAt": _ms(limit_end(job)),
        }
        self._desk.gauges.waited((job.claimed_at or 0) - (job.enqueued_at or 0))
        await self._desk.sockets.tell(ENGINE, link.peer.sid, "job", told)

    async def _leave(self, link: Link, stored: Stored, error: SecretError) -> None:
        """The key is not here: another server may have it, so its kind is left to that one."""
        if (pause := self._shut.met(stored.body.type)) is not None:
            told = "jobs of %s are left to other servers for %g s: %s"
            _log.warning(told, stored.body.type, pause, error)
        self._links.drop(link, stored.job.id)
        await self._desk.engine.carry_out([put_off(stored, _BY, error, self._desk.now())])

    async def _spoil(self, link: Link, stored: Stored, why: str) -> None:
        """What cannot be sent fails, rather than to wait for ever."""
        job, code = stored.job, "SECRET_UNREADABLE"
        self._links.drop(link, job.id)
        failure = Failure(job.attempt, self._desk.now(), code, why)
        command, by = j.Refuse(lease=job.lease, code=code), By(Actor.WORKER, link.holder)
        change = Change(key_of(job), command, by, None, Beside(failure=failure), known=stored)
        await self._desk.engine.carry_out([change])

    async def _pause(self, seconds: float, seen: int | None) -> None:
        """Until there may be something to give, or somebody to give it to."""
        waits: list[asyncio.Future[bool]] = [
            asyncio.ensure_future(self._links.bell.wait()),
            asyncio.ensure_future(self._desk.service.stopping.wait()),
        ]
        if seen is not None:
            store = self._desk.engine.store
            waits.append(asyncio.ensure_future(store.wait(seconds, seen)))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()

    # --- the end --------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Take back what was offered and not begun, and tell engines to look for another server."""
        for link in self._links:
            back = await self._taken_back(link, "the server stops")
            await self._desk.sockets.tell(ENGINE, link.peer.sid, "drain", {"jobs": back})

    async def drained(self, link: Link, _: Drain) -> dict[str, Any]:
        """An engine is to stop: it gets no more, and gives up what it has not begun."""
        return {"jobs": await self._taken_back(link, "the engine stops")}

    async def _taken_back(self, link: Link, why: str) -> list[str]:
        link.capacity = 0
        waiting = [held for held in link.held.values() if held.job.state is j.JobState.PENDING]
        jobs = [held.stored for held in waiting]
        answers = await self._desk.engine.engines.hand_back(jobs, why)
        back = [one.id for one in map(_job_of, answers) if one is not None]
        for name in back:
            self._links.drop(link, name)
        return back


def _job_of(answer: j.Answer) -> j.Job | None:
    """The job, if it is nobody's any more."""
    if isinstance(answer, j.Accepted | j.Unchanged) and answer.job.lease is None:
        return answer.job
    return None


def _ms(at: int | None) -> int | None:
    return None if at is None else at // 1_000
