"""Jobs of a web application: started, read, listed, cancelled, and run once more."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.enqueueing import Clash, Enqueued
from detent.engine.limits import need_job
from detent.engine.rerunning import rerun_ask, unrepeatable
from detent.errors import BadArguments, LimitError, PayloadTooLarge, SecretUnreadable
from detent.lifecycle.job.table import JobState
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import ProfileName
from detent.lifecycle.views import REST
from detent.stores.api import Idempotency, Key, Stored, key_of
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.problems import Problem
from detent.surfaces.http.tracing import trace_of
from detent.surfaces.rest.desk import UUID, Desk, number_in
from detent.surfaces.rest.faults import bad, conflict, misfit, of_refusal, unfit
from detent.surfaces.rest.shown import Asker, job_of

KEPT_US: Final = 24 * 3_600 * 1_000_000
"""How long an idempotency key stands for the job that it was sent with."""
LIMIT_MAX: Final = 100
_LIMIT: Final = 20
_KEY = re.compile(r"[\x20-\x7e]{1,255}")
_JSON = "application/json"


class Actions(Protocol):
    """The actions that a program declares, for a server that was told of one."""

    @property
    def names(self) -> Sequence[str]:
        """What may be started."""
        ...

    def misfits(self, action: str, payload: str) -> dict[str, str]:
        """What is wrong with the inputs, by field."""
        ...

    def ask(self, action: str, payload: str, now: int) -> Ask:
        """The job, as its declaration has it."""
        ...


class _Started(msgspec.Struct, frozen=True):
    action: str
    inputs: dict[str, Raw] | UnsetType | None = msgspec.UNSET


class Jobs:
    """The operations on jobs. Without `actions` any is taken, and left to the workers."""

    def __init__(self, desk: Desk, actions: Actions | None) -> None:
        self._desk = desk
        self._actions = actions

    # --- new jobs -------------------------------------------------------------------------------

    async def start(self, call: Call) -> Reply:
        """Start an action; the same request under one Idempotency-Key is one job."""
        _need_json(call)
        key, wanted = _key_of(call), _read(call)
        ask = self._ask(call, wanted)
        call.caller.need_queue(ask.queue)
        if key is not None:
            ask = replace(ask, idempotency=await self._once(ask, key))
        return await self._made(call, ask)

    def _ask(self, call: Call, wanted: _Started) -> Ask:
        inputs = {} if isinstance(wanted.inputs, UnsetType) else wanted.inputs or {}
        payload = msgspec.json.encode({"args": (), "kwargs": inputs}).decode()
        try:
            return self._sound(call, wanted.action, payload)
        except (BadArguments, LimitError) as error:
            raise error if isinstance(error, PayloadTooLarge) else misfit(error) from None

    def _sound(self, call: Call, action: str, payload: str) -> Ask:
        ask = Ask(type=action, payload=payload)
        # Its limits first: what is nested too deeply is not even read.
        need_job(ask)
        if self._actions is not None:
            self._need_fit(action, payload)
            ask = self._actions.ask(action, payload, self._desk.engine.store.now())
        tenant, meta = call.caller.tenant, _meta(call)
        told = {"meta": meta, "tenant": tenant, "trace": trace_of(call)}
        return replace(ask, **told, profile=ProfileName.REST, retry=None)

    def _need_fit(self, action: str, payload: str) -> None:
        assert self._actions is not None  # noqa: S101 - asked only where there are some
        if action not in self._actions.names:
            raise unfit(f"there is no action {action[:100]}", action="it is not known here")
        misfits = self._actions.misfits(action, payload)
        if misfits:
            named = {f"inputs.{name}" if name else "inputs": why for name, why in misfits.items()}
            raise unfit(f"the inputs do not fit {action}", **named)

    async def _once(self, ask: Ask, key: str) -> Idempotency:
        """The promise. What is secret is told apart too, but only by who has the key to it."""
        engine = self._desk.engine
        plain = json.dumps([ask.type, json.loads(ask.payload)], sort_keys=True)
        paths = ask.secret or (await engine.declared.of([ask.type]))[ask.type]
        digest = engine.secrets.digest(plain) if paths else _sha256(plain)
        return Idempotency(_sha256(f"rest {key}"), digest, engine.store.now() + KEPT_US)

    async def _made(self, call: Call, ask: Ask) -> Reply:
        try:
            [answer] = await self._desk.engine.enqueue([ask], call.caller.actor)
        except BadArguments as error:
            raise misfit(error) from None
        made = _enqueued(answer)
        [stored] = await self._desk.engine.store.get([key_of(made.job)])
        assert stored is not None  # noqa: S101 - it is durable
        if made.is_new:
            # As it was made, though a worker may have it by now.
            job = {**job_of(replace(stored, job=made.job, result=None)), "logs": []}
        else:
            job = await self._desk.shown(stored)
        reply = self._desk.reply(call, 202, job=job)
        return replace(reply, headers=(("location", f"/api/jobs/{made.job.id}"),))

    async def retry(self, call: Call) -> Reply:
        """A new job like one that failed or was cancelled; the old one stays as it is."""
        stored, by = await self._desk.stored(call), call.caller.actor
        if stored.job.state not in (JobState.DISCARDED, JobState.CANCELLED):
            raise _unlike(stored, "retried", "failed or cancelled")
        barred = unrepeatable(stored, by)
        if barred is not None:
            raise of_refusal(barred)
        ask = replace(rerun_ask(stored, f"request {call.request_id}"), meta=_meta(call))
        try:
            return await self._made(call, ask)
        except SecretUnreadable as error:
            raise conflict(error.message) from None

    # --- jobs that there are --------------------------------------------------------------------

    async def get(self, call: Call) -> Reply:
        """A job as it is."""
        job = await self._desk.shown(await self._desk.stored(call))
        return self._desk.reply(call, job=job)

    async def listed(self, call: Call) -> Reply:
        """Jobs, newest first, without their logs."""
        query = call.query
        limit = number_in(query, "limit", _LIMIT, LIMIT_MAX)
        tenant, action = call.caller.tenant, query.get("action") or None
        page = Page(limit + 1, await self._after(tenant, query.get("cursor")))
        found: list[Stored] = []
        for state in _states(query.get("state")):
            chosen = Filter(tenant=tenant, state=state, type=action)
            found += await self._desk.engine.store.find(chosen, page)
        found.sort(key=lambda one: one.job.id, reverse=True)
        more: dict[str, Any] = {"nextCursor": found[limit - 1].job.id} if len(found) > limit else {}
        mine = [one for one in found[:limit] if _may_see(call, one)]
        jobs = [job_of(one, await self._desk.error(one)) for one in mine]
        return self._desk.reply(call, jobs=jobs, **more)

    async def _after(self, tenant: str, cursor: str | None) -> Key | None:
        """The last job of a page; after anything else the list would begin anywhere."""
        if not cursor:
            return None
        if UUID.fullmatch(cursor) is None:
            [found] = await self._desk.engine.store.get([(tenant, cursor)])
            if found is None:
                raise bad("cursor must be the nextCursor of a list")
        return tenant, cursor

    async def cancel(self, call: Call) -> Reply:
        """Call it off: at once if it waits; one that runs is asked to stop."""
        stored = await self._desk.stored(call)
        answer = await self._desk.engine.operators.cancel(
            key_of(stored.job), call.caller.actor, f"request {call.request_id}"
        )
        if isinstance(answer, Refusal):
            # Somebody may have been faster: what counts is where it stands now.
            stored = await self._desk.stored(call)
        else:
            stored = replace(stored, job=answer.job)
        state = stored.job.state
        if state in (JobState.COMPLETED, JobState.DISCARDED):
            raise _unlike(stored, "cancelled", "pending or running")
        if isinstance(answer, Refusal) and state is not JobState.CANCELLED:
            raise of_refusal(answer)
        status = 200 if state is JobState.CANCELLED else 202
        return self._desk.reply(call, status, job=await self._desk.shown(stored))


def _enqueued(answer: Enqueued | Clash | Refusal) -> Enqueued:
    if isinstance(answer, Refusal):
        raise of_refusal(answer)
    if isinstance(answer, Enqueued):
        return answer
    if answer.what == "idempotency":
        raise conflict("this Idempotency-Key was sent with another action or other inputs")
    raise conflict("a job like this is there already", jobId=answer.by.id)


def _unlike(stored: Stored, done: str, needed: str) -> Problem:
    state = REST.word(stored.job)
    return conflict(
        f"a job that is {state} cannot be {done}, one that is {needed} can", state=state
    )


def _may_see(call: Call, one: Stored) -> bool:
    return one.job.erased_at is None and call.caller.may_use(one.job.queue)


def _states(asked: str | None) -> Sequence[str | None]:
    if not asked:
        return (None,)
    found = [state.value for row in REST.words if row.word == asked for state in row.states]
    if not found:
        words = ", ".join(dict.fromkeys(row.word for row in REST.words))
        raise unfit(f"there is no state {asked[:20]}", state=f"it must be one of {words}")
    return found


def _need_json(call: Call) -> None:
    if call.media_type != _JSON:
        raise bad(f"the Content-Type must be {_JSON}")


def _key_of(call: Call) -> str | None:
    key = call.header("idempotency-key")
    if key is not None and not _KEY.fullmatch(key):
        raise bad("Idempotency-Key must be 1 to 255 printable ASCII characters")
    return key


def _read(call: Call) -> _Started:
    try:
        return msgspec.json.decode(call.body, type=_Started)
    except msgspec.ValidationError as error:
        raise bad(f"the body is not {{action, inputs?}}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # What is wrong with it is not quoted: it may be a secret.
        raise bad("the body is no JSON") from None


def _meta(call: Call) -> str:
    key = call.caller.principal
    asker = Asker(call.request_id, key.name or key.id or None)
    return msgspec.json.encode(asker).decode()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def manifest_of(actions: Actions | None) -> dict[str, Any]:
    """What may be started here."""
    if actions is None:
        return {"actions": None, "unknownActions": "accepted"}
    return {"actions": list(actions.names), "unknownActions": "refused"}
