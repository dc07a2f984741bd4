"""Whoever keeps the jobs is a server: what a worker asks goes there, many things at once.

The server does what an engine here would do, and its fences decide. So everything may be said again
when no answer came: a claim has a name and gets the same jobs, a report that was carried out is
answered as it was. What only somebody with a database can do is refused, and the error says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from time import time_ns
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from detent.engine.access import ALL_QUEUES
from detent.engine.asks import Ask
from detent.engine.commands import Change, refusals
from detent.engine.identity import Identity
from detent.engine.progress import Before, Result
from detent.engine.reports import Answered, Report, report_of
from detent.engine.secrets import Opened, Owner, Secrets, values_at
from detent.errors import NoStore, SecretUnreadable
from detent.host import host_name
from detent.lifecycle import job as j
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.runtime.remote.client import Client
from detent.runtime.worker.settings import Settings
from detent.stores.api import (
    Claimed,
    Death,
    Key,
    LimitRow,
    Line,
    Note,
    Stored,
    Want,
    WorkerRow,
    key_of,
)

T = TypeVar("T")
LEASE_S: Final = 15.0
"""How long the server waits for a sign of life before it gives our jobs to others."""
_REPORTS_MAX: Final = 200
_LINES_MAX: Final = 500
_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one request; the server takes more, and one report may be so large."""
_RESULTS_MAX: Final = 1_000
_WAIT_SPARE_S: Final = 5.0
_US: Final = 1_000_000


class _Fetched(msgspec.Struct, frozen=True):
    records: tuple[Stored, ...] = ()
    retry_at: int | None = None
    seen: str | None = None
    now: int | None = None


class _Heard(msgspec.Struct, frozen=True):
    answers: list[Answered] = []
    now: int | None = None


class _Beaten(msgspec.Struct, frozen=True):
    state: str = "running"
    jobs_lost: list[str] = []
    jobs_cancelled: list[str] = []
    now: int | None = None
    key_queues: tuple[str, ...] = ALL_QUEUES


Places: TypeAlias = Callable[[str], Sequence[str]]
"""Where in a payload its secrets are."""


class _Results(msgspec.Struct, frozen=True):
    before: Before
    results: dict[str, list[Result]]


class RemoteSecrets:
    """Secret arguments arrive open, and what is secret about them the program itself declares."""

    def __init__(self, places: Mapping[str, Places]) -> None:
        self._places = places

    def opened(self, payload: str, owner: Owner) -> Opened:
        """The same, with what must be masked; what the server could not open does not open here.

        It has put off what it has no key for, so that is broken.
        """
        try:
            Secrets().opened(payload, owner)
        except SecretUnreadable as error:
            raise SecretUnreadable(
                "The server could not open a secret of it: it was changed, or is of another job",
                path=error.fields.get("path", ""),
                why="damaged",
            ) from None
        places = self._places[owner.type](payload) if owner.type in self._places else ()
        return Opened(payload, values_at(payload, places))

    def sealed(self, ask: Ask, job_id: str) -> Ask:  # noqa: ARG002 - as stores have it
        """It is the server that locks: here it is only looked whether such a job could be."""
        return replace(ask, secret=())


class RemoteOffice:
    """One worker's side of the conversation, in the loop of the bridge."""

    def __init__(
        self,
        client: Client,
        instance: str,
        settings: Settings,
        places: Mapping[str, Places],
    ) -> None:
        self.instance = instance
        self.identity = Identity(self.now)
        self.secrets = RemoteSecrets(places)
        self.directed: Callable[[str], None] = lambda _: None
        """Told what the server wants of us, with every beat: running, quiet or terminate."""
        self._client = client
        self._tenants = settings.tenants
        self._facts = _facts(settings)
        self.key_queues: tuple[str, ...] = ALL_QUEUES
        """Which queues the server lets us serve, as patterns; it says so with every beat."""
        self._ahead_us = 0
        self._seen: str | None = None
        self._held: dict[Key, Stored] = {}
        self._asked: dict[str, str] = {}
        """Whose jobs were asked for, by whose they are: a key may be for one tenant alone."""
        self._results: dict[tuple[Key, str], list[Result]] = {}

    @property
    def store(self) -> RemoteOffice:
        """There is no other place."""
        return self

    @property
    def workflows(self) -> RemoteOffice:
        """Nor anybody else who knows the steps."""
        return self

    def now(self) -> int:
        """The time of the server, as well as it is known here."""
        return time_ns() // 1_000 + self._ahead_us

    def serve(self, settings: Settings) -> None:
        """Tell the server which queues these are, from now on."""
        self._facts = _facts(settings)

    # --- jobs -----------------------------------------------------------------------------------

    async def claim(self, want: Want) -> Claimed:
        """Jobs to run. Repeated, it gets the same: the server makes their leases of its name."""
        body = {
            "records": True,
            "claim_id": want.command_id,
            "worker_id": self.instance,
            "queues": want.queues,
            "types": want.types,
            "count": len(want.leases),
            "visibility_timeout_ms": round(LEASE_S * 1_000),
            "fair": want.fair,
        }
        told = await self._post("/workers/fetch", body, _Fetched, want.tenant)
        self._seen = told.seen
        for one in told.records:
            self._held[key_of(one.job)] = one
            self._asked[one.job.tenant] = want.tenant
        return Claimed(told.records, retry_at=told.retry_at)

    async def carry_out(self, changes: Sequence[Change]) -> list[j.Answer]:
        """Reports, an answer for each, in order; those of a tenant go together."""
        answers: dict[int, j.Answer] = {}
        for tenant, some in self._by_tenant(enumerate(changes), lambda pair: pair[1].key):
            said = await self._say(tenant, [report_of(change) for _, change in some])
            for (at, change), one in zip(some, said, strict=True):
                answers[at] = _answer(one)
                self._let_go(change.key, answers[at])
        return [answers[at] for at in range(len(changes))]

    async def refused(self, changes: Sequence[Change]) -> dict[int, Refusal]:
        """The same for whoever only wants to know which of them are refused."""
        return refusals(await self.carry_out(changes))

    async def get(self, keys: Sequence[Key]) -> list[Stored | None]:
        """What the server knows of them, as far as a run must know it. They are held for longer."""
        heard = await self._beat(keys)
        return [self._seen_now(key, heard) for key in keys]

    async def wait(self, timeout_s: float, seen: int | None = None) -> bool:  # noqa: ARG002 - as stores have it
        """Until there may be something to claim: the server says when, or does not."""
        body = {"wait_ms": round(timeout_s * 1_000), "seen": self._seen}
        await self._client.post(
            "/workers/wait", body, dict[str, Any], timeout_s=timeout_s + _WAIT_SPARE_S
        )
        return True

    # --- what runs say --------------------------------------------------------------------------

    async def note(
        self,
        notes: Sequence[tuple[Key, str, Note]],
        *,
        now: int,  # noqa: ARG002 - as stores have it
    ) -> list[bool]:
        """How far runs are; of one that is not ours any more it is not heard."""
        for tenant, some in self._by_tenant(notes, lambda one: one[0]):
            said = [Report(job_id=key[1], lease=lease, note=note) for key, lease, note in some]
            await self._say(tenant, said)
        return [True] * len(notes)

    async def append_logs(self, lines: Sequence[tuple[Key, Line]]) -> list[int]:
        """What runs said."""
        for tenant, some in self._by_tenant(lines, lambda one: one[0]):
            await self._say(tenant, list(_reports_of(some)))
        return [1] * len(lines)

    async def set_limits(self, limits: Sequence[LimitRow]) -> None:  # noqa: ARG002
        """No part of any protocol."""
        fix = "set the limit where the database is, or enqueue such jobs without one"
        raise NoStore(f"A worker of a server cannot set limits: {fix}", what="limits")

    # --- what came before -----------------------------------------------------------------------

    async def before(self, job: Job) -> Before:
        """The steps before a job; what came out of them comes along, and is asked for next."""
        if job.workflow is None:
            return Before()
        body, tenant = {"job_id": job.id, "lease": job.lease}, self._tenant(key_of(job))
        told = await self._client.post("/workers/results", body, _Results, tenant=tenant)
        if len(self._results) > _RESULTS_MAX:
            self._results.clear()
        key = (job.tenant, job.workflow)
        self._results |= {(key, step): found for step, found in told.results.items()}
        return told.before

    async def results_of(self, key: Key, step: str) -> list[Result]:
        """What came out of one of them."""
        return self._results.get((key, step), [])

    # --- signs of life --------------------------------------------------------------------------

    async def beat(self, workers: Sequence[WorkerRow], *, now: int) -> list[bool]:  # noqa: ARG002
        """Say that we live, and hold on to everything that was given to us."""
        heard = await self._beat(list(self._held))
        for key in [key for key in self._held if key[1] in heard[self._tenant(key)].jobs_lost]:
            del self._held[key]
        self.key_queues = next((one.key_queues for one in heard.values()), self.key_queues)
        self.directed(_sternest(one.state for one in heard.values()))
        return [True] * len(workers)

    async def bury(self, deaths: Sequence[Death], *, now: int) -> list[bool]:  # noqa: ARG002
        """We go: what we still hold is free at once."""
        for death in deaths:
            await tell_gone(self._client, death.id, self._tenants)
        return [True] * len(deaths)

    async def _beat(self, keys: Sequence[Key]) -> dict[str, _Beaten]:
        told: dict[str, _Beaten] = {}
        for tenant in self._tenants:
            names = {key[1]: self._lease(key) for key in keys if self._tenant(key) == tenant}
            body = {
                "worker_id": self.instance,
                "leases": names,
                "visibility_timeout_ms": round(LEASE_S * 1_000),
                **self._facts,
            }
            told[tenant] = await self._post("/workers/heartbeat", body, _Beaten, tenant)
        return told

    # --- the rest -------------------------------------------------------------------------------

    async def _say(self, tenant: str, reports: Sequence[Report]) -> list[Answered]:
        answers: list[Answered] = []
        for some in _batches(reports):
            body = {"worker_id": self.instance, "reports": some}
            answers += (await self._post("/workers/report", body, _Heard, tenant)).answers
        return answers

    async def _post(self, path: str, body: Any, kind: Any, tenant: str) -> Any:
        """The answer; on the way the clocks are compared."""
        sent = time_ns() // 1_000
        told = await self._client.post(path, body, kind, tenant=tenant)
        if told.now is not None:
            self._ahead_us = told.now - (sent + time_ns() // 1_000) // 2
        return told

    def _tenant(self, key: Key) -> str:
        """By which name the server is asked for it."""
        return self._asked.get(key[0], key[0])

    def _by_tenant(
        self, things: Iterable[T], key_of_it: Callable[[T], Key]
    ) -> Iterator[tuple[str, list[T]]]:
        found: dict[str, list[T]] = {}
        for one in things:
            found.setdefault(self._tenant(key_of_it(one)), []).append(one)
        yield from found.items()

    def _lease(self, key: Key) -> str:
        held = self._held.get(key)
        return "" if held is None else held.job.lease or ""

    def _seen_now(self, key: Key, heard: Mapping[str, _Beaten]) -> Stored | None:
        held, told = self._held.get(key), heard[self._tenant(key)]
        if held is None or key[1] in told.jobs_lost:
            return None
        if key[1] not in told.jobs_cancelled:
            return held
        return replace(held, job=replace(held.job, cancel_at=self.now()))

    def _let_go(self, key: Key, answer: j.Answer) -> None:
        """A job that has left our hands is not held on to any more."""
        if not isinstance(answer, j.Accepted) or answer.job.state is not j.JobState.ACTIVE:
            self._held.pop(key, None)


async def tell_gone(
    client: Client, instance: str, tenants: Sequence[str], *, has_lapsed: bool = False
) -> None:
    """A worker has ended: nobody waits for its leases to."""
    body = {"worker_id": instance, "lapsed": has_lapsed}
    for tenant in tenants:
        await client.post("/workers/gone", body, dict[str, Any], tenant=tenant)


def _answer(said: Answered) -> j.Answer:
    answer = said.answer
    assert answer is not None  # noqa: S101 - there is one to everything with an event
    return answer


def _facts(settings: Settings) -> dict[str, Any]:
    """What the server shows of us."""
    return {
        "queues": settings.served,
        "concurrency": settings.slots,
        "hostname": host_name(),
        "pid": os.getpid(),
        "version": version("detent"),
    }


def _reports_of(lines: Sequence[tuple[Key, Line]]) -> Iterator[Report]:
    """The lines of each job together, as many as go with one report."""
    found: dict[str, list[Line]] = {}
    for (_, name), line in lines:
        found.setdefault(name, []).append(line)
    for name, some in found.items():
        for at in range(0, len(some), _LINES_MAX):
            yield Report(job_id=name, lease="", lines=tuple(some[at : at + _LINES_MAX]))


def _batches(reports: Sequence[Report]) -> Iterator[list[msgspec.Raw]]:
    """As many as go into one request: one alone always does."""
    batch: list[msgspec.Raw] = []
    size = 0
    for report in reports:
        told = msgspec.Raw(msgspec.json.encode(report))
        if batch and (len(batch) >= _REPORTS_MAX or size + len(bytes(told)) > _BYTES_MAX):
            yield batch
            batch, size = [], 0
        batch.append(told)
        size += len(bytes(told))
    if batch:
        yield batch


def _sternest(states: Iterable[str]) -> str:
    """Of several words the one that asks for most."""
    order = ("running", "quiet", "terminate")
    return max(states, key=lambda one: order.index(one) if one in order else 0, default="running")
