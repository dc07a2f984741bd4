"""Workers as they tell of themselves: registered, beating, and told what to become.

A worker is one small record. One that has beaten and then falls silent for long is dead: its jobs
are lost at once, whatever their reservations say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from detent.engine.losing import may_be_spared
from detent.engine.paging import all_records
from detent.engine.returning import returned
from detent.lifecycle.profile import PROFILES, ProfileName
from detent.stores.api import Key, Record, Stored
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.envelope import kept_of
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import need_text
from detent.surfaces.ojs.silence import BY, Stalls, lose
from detent.surfaces.ojs.wire import span_ms, told

KIND: Final = "ojs-worker"
SILENT_US: Final = 30_000_000
FRESH_US: Final = 1_000_000
"""How long the directive of a worker is remembered here without asking."""
_QUIET = frozenset({"quiet", "drain", "draining", "terminate", "terminated"})
_DIRECTIVES = ("running", "quiet", "terminate")
_JOBS_MAX = 1_000
_KNOWN_MAX = 10_000


class Worker(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What is known of a worker. `directive` is what it is told to become."""

    id: str
    started_at: int
    last_at: int
    state: str = "running"
    directive: str = "running"
    active: int = 0
    beats: bool = False
    hostname: str | None = None
    pid: int | None = None
    queues: tuple[str, ...] = ()
    concurrency: int | None = None
    labels: dict[str, Any] | list[Any] | None = None
    version: str | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it takes no more jobs."""
        return self.state in _QUIET or self.directive in _QUIET


class _Beat(msgspec.Struct, frozen=True):
    worker_id: str | None = None
    active_jobs: list[str] | int | None = None
    active_job_ids: list[str] | None = None
    job_id: str | None = None
    leases: dict[str, str] | None = None
    visibility_timeout_ms: int | None = None
    state: str | None = None
    hostname: str | None = None
    pid: int | None = None
    queues: list[str] | None = None
    concurrency: int | None = None
    labels: dict[str, Any] | list[Any] | None = None
    version: str | None = None

    @property
    def named(self) -> list[str]:
        """The jobs that it says it has."""
        some = self.active_jobs if isinstance(self.active_jobs, list) else []
        one = [self.job_id] if self.job_id else []
        every = [*some, *(self.active_job_ids or []), *one, *(self.leases or {})]
        return list(dict.fromkeys(every))[:_JOBS_MAX]


class Workers:
    """The operations of workers about themselves."""

    def __init__(self, desk: Desk, stalls: Stalls) -> None:
        self._desk = desk
        self.stalls = stalls
        self._known: dict[Key, tuple[int, bool]] = {}

    # --- operations -----------------------------------------------------------------------------

    async def register(self, call: Call) -> Reply:
        """Tell of a worker before it begins."""
        beat = read_body(call, _Beat)
        worker = await self._beaten(call, beat)
        return self._desk.reply(
            {
                "ok": True,
                "worker_id": worker.id,
                "server_time": told(self._desk.now()),
                "heartbeat_interval": 5,
                "heartbeat_timeout": 30,
                "visibility_timeout_default": 1800,
            }
        )

    async def heartbeat(self, call: Call) -> Reply:
        """A sign of life: the reservations of the jobs that are named begin anew."""
        beat = read_body(call, _Beat)
        worker = await self._beaten(call, beat)
        extended, lost, cancelled = await self._extended(call, beat)
        return self._desk.reply(
            {
                "acknowledged": True,
                "state": worker.directive,
                "directive": "" if worker.directive == "running" else worker.directive,
                "jobs_extended": extended,
                "jobs_lost": lost,
                "jobs_cancelled": cancelled,
                "server_time": told(self._desk.now()),
                "now": self._desk.now(),
                "key_queues": call.caller.queues,
            }
        )

    async def health(self, call: Call) -> Reply:
        """How a worker fares, by what it has said."""
        name = call.param("id")
        worker = await self.get((call.caller.tenant, name))
        if worker is None:
            raise missing("worker", name)
        state = "draining" if worker.is_quiet else worker.state
        body = {"worker_id": name, "state": state, "last_heartbeat_at": told(worker.last_at)}
        return self._desk.reply(body, 503 if worker.is_quiet else 200)

    # --- for others -----------------------------------------------------------------------------

    async def get(self, key: Key) -> Worker | None:
        """What is known of a worker."""
        record = await self._desk.record(KIND, key)
        return None if record is None else _read(record)

    async def all(self, tenant: str) -> list[Worker]:
        """All workers of a tenant that are not dead."""
        return [_read(one) for one in await all_records(self._desk.engine.store, KIND, tenant)]

    async def is_quiet(self, key: Key) -> bool:
        """Whether a worker is to get no more jobs; an answer is believed for a moment."""
        at, quiet = self._known.get(key, (-FRESH_US, False))
        now = self._desk.now()
        if 0 <= now - at < FRESH_US:
            return quiet
        worker = await self.get(key)
        return self._remember(key, worker is not None and worker.is_quiet)

    async def direct(self, key: Key, directive: str) -> None:
        """Tell a worker what to become, with its next heartbeat."""
        if directive not in _DIRECTIVES:
            raise invalid(f"a directive is one of {', '.join(_DIRECTIVES)}")
        now = self._desk.now()

        def directed(record: Record | None) -> tuple[str, int | None]:
            worker = (
                Worker(id=key[1], started_at=now, last_at=now) if record is None else _read(record)
            )
            return _written(replace(worker, directive=directive))

        await self._desk.change(KIND, key, directed)
        self._known.pop(key, None)

    async def bury(self, key: Key, *, has_lapsed: bool = False) -> int:
        """It has ended: forget it, and let others have what it held; how many jobs that were."""
        await self.remove(key)
        held = await self._held(key)
        back, lost = list[Stored](), list[Stored]()
        for one in held:
            (back if has_lapsed and may_be_spared(one.job) else lost).append(one)
        if back:
            why = f"worker {key[1]} was stopped, because it could not reach its server"
            await self._desk.engine.carry_out([returned(one, BY, why) for one in back])
        await self._lose(lost)
        return len(held)

    async def need_own(self, call: Call, key: Key) -> None:
        """Refuse to speak for a worker of queues that the key is not for."""
        if call.caller.is_bound:
            worker = await self.get(key)
            call.caller.need_queue(*(() if worker is None else worker.queues))
            call.caller.need_queue(*(one.job.queue for one in await self._held(key)))

    async def remove(self, key: Key) -> None:
        """Forget a worker."""
        await self._desk.change(KIND, key, lambda _: (None, None))

    # --- beating --------------------------------------------------------------------------------

    async def _beaten(self, call: Call, beat: _Beat) -> Worker:
        name = need_text("worker_id", beat.worker_id)
        now, key, made = self._desk.now(), (call.caller.tenant, name), list[Worker]()

        await self.need_own(call, key)

        def beaten(record: Record | None) -> tuple[str, int | None]:
            before = (
                Worker(id=key[1], started_at=now, last_at=now) if record is None else _read(record)
            )
            made.append(_after(before, beat, now))
            return _written(made[-1])

        await self._desk.change(KIND, key, beaten)
        self._remember(key, made[-1].is_quiet)
        return made[-1]

    async def _extended(self, call: Call, beat: _Beat) -> tuple[list[str], list[str], list[str]]:
        """Which jobs are held for longer now, which are not held any more, and which should stop.

        A job that was called off is still held, until its worker has ended it.
        """
        names, tenant = beat.named, call.caller.tenant
        found = await self._desk.find([(tenant, name) for name in names]) if names else []
        held = [
            (name, one)
            for name, one in zip(names, found, strict=True)
            if one is not None and call.caller.may_use(one.job.queue) and _is_held(name, one, beat)
        ]
        asked = [(one.job.lease or "", self._until(one, beat)) for _, one in held]
        now = self._desk.now()
        done = await self._desk.engine.store.extend(asked, now=now) if asked else []
        extended = [name for (name, _), good in zip(held, done, strict=True) if good]
        await self.stalls.heard([one for _, one in held])
        forgiven = (
            () if beat.leases else (n for n, one in zip(names, found, strict=True) if not one)
        )
        kept = {*extended, *forgiven}
        cancelled = [name for name, one in held if one.job.cancel_at is not None]
        return extended, [name for name in names if name not in kept], cancelled

    def _until(self, stored: Stored, beat: _Beat) -> int:
        # Whoever names leases holds all its jobs alike, and for as long as it says.
        own = None if beat.leases else kept_of(stored.body.meta).extras.visibility_ms
        asked = own or beat.visibility_timeout_ms
        usual = PROFILES[ProfileName.OJS].lease_us
        return self._desk.now() + (
            usual if asked is None else span_ms("visibility_timeout_ms", asked)
        )

    def _remember(self, key: Key, quiet: bool) -> bool:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[key] = (self._desk.now(), quiet)
        return quiet

    # --- death ----------------------------------------------------------------------------------

    async def answer(self, due: Sequence[Record]) -> None:
        """Bury those who have been silent for too long; upkeep asks."""
        now, engine = self._desk.now(), self._desk.engine
        for record in due:
            worker = _read(record)
            over_at = max(worker.last_at + SILENT_US, engine.upkeep.trusting_until)
            if over_at > now:
                again = replace_wake(record, over_at)
                await engine.put(again)
            elif await engine.put(
                Record(KIND, record.id, record.version + 1, None, None, record.tenant)
            ):
                await self._lose(await self._held((record.tenant, worker.id)))

    async def _held(self, key: Key) -> list[Stored]:
        tenant, name = key
        held = await self._desk.engine.store.held_by(name, _JOBS_MAX)
        return [one for one in held if one.job.wire and one.job.tenant == tenant]

    async def _lose(self, held: Sequence[Stored]) -> None:
        await lose(self._desk, held, "worker_death", "Its worker has given no sign of life.")


def replace_wake(record: Record, wake_at: int) -> Record:
    """The same record, to be looked at later."""
    return replace(record, version=record.version + 1, wake_at=wake_at)


def _is_held(name: str, stored: Stored, beat: _Beat) -> bool:
    if stored.job.state != "active" or not stored.job.wire:
        return False
    if beat.leases is not None and beat.leases.get(name) != stored.job.lease:
        return False
    return stored.job.holder in (beat.worker_id, "anonymous")


def _after(worker: Worker, beat: _Beat, now: int) -> Worker:
    """The worker as it is after a beat; what is not told stays as it was."""
    told_of: dict[str, Any] = {
        "state": beat.state,
        "hostname": beat.hostname,
        "pid": beat.pid,
        "queues": None if beat.queues is None else tuple(beat.queues),
        "concurrency": beat.concurrency,
        "labels": beat.labels,
        "version": beat.version,
    }
    some = {name: value for name, value in told_of.items() if value is not None}
    active = beat.active_jobs if isinstance(beat.active_jobs, int) else len(beat.named)
    return replace(worker, **some, active=active, last_at=now, beats=True)


def _read(record: Record) -> Worker:
    return msgspec.json.decode(record.data or "", type=Worker)


def _written(worker: Worker) -> tuple[str, int | None]:
    wake_at = worker.last_at + SILENT_US if worker.beats else None
    return msgspec.json.encode(worker).decode(), wake_at
