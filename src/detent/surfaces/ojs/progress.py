"""How far a job says it is, and what it has saved on the way."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType

from detent.engine.commands import Beside, Change
from detent.engine.limits import need_result
from detent.lifecycle import job as j
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import PROFILES, ProfileName
from detent.lifecycle.views import OJS
from detent.stores.api import Note, Stored, key_of
from detent.surfaces.http.exchange import Call, Reply, digest_of
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.envelope import kept_of
from detent.surfaces.ojs.faults import conflict, invalid, missing
from detent.surfaces.ojs.silence import Stalls
from detent.surfaces.ojs.wire import told

DATA_MAX: Final = 4_096
TEXT_MAX: Final = 2_000
_PARTS = 100


class _Said(msgspec.Struct, frozen=True):
    job_id: str | None = None
    progress: float | None = None
    percentage: float | None = None
    message: str | None = None
    data: Raw | UnsetType = msgspec.UNSET


class _Saved(msgspec.Struct, frozen=True):
    state: Raw | UnsetType = msgspec.UNSET


class _Checkpoint(msgspec.Struct, frozen=True):
    """What is kept: the state that was saved, and how often something was."""

    state: Raw
    sequence: int
    created_at: str
    deleted: bool = False


class Progress:
    """The operations on progress and checkpoints."""

    def __init__(self, desk: Desk, stalls: Stalls) -> None:
        self._desk = desk
        self._stalls = stalls

    # --- progress -------------------------------------------------------------------------------

    async def put(self, call: Call) -> Reply:
        """Tell how far a job is; one that does not run is left alone."""
        said = read_body(call, _Said)
        name = call.param("id") if "id" in call.params else said.job_id or ""
        share = said.progress
        if share is None and said.percentage is not None:
            share = said.percentage / _PARTS
        if share is None:
            raise invalid("progress is needed: a number from 0 to 1", field="progress")
        stored = await self._desk.stored(call, name)
        note = self._note(stored, min(max(share, 0.0), 1.0), said)
        if stored.job.state == "active" and note is not None:
            await self._keep(stored, note)
            stored = msgspec.structs.replace(stored, note=note)
        return self._desk.reply(progress_shown(stored, name))

    async def get(self, call: Call) -> Reply:
        """How far a job has said it is."""
        name = call.param("id")
        return self._desk.reply(progress_shown(await self._desk.stored(call, name), name))

    def _note(self, stored: Stored, share: float, said: _Said) -> Note | None:
        """What is noted; less than before within one attempt is not."""
        before, percent = stored.note, round(share * _PARTS)
        is_same_run = before is not None and before.attempt == stored.job.attempt
        if before is not None and is_same_run and (before.percent or 0) > percent:
            return None
        text = (said.message or "")[:TEXT_MAX]
        if not isinstance(said.data, UnsetType) and bytes(said.data) != b"null":
            data = bytes(said.data).decode()
            if len(data) > DATA_MAX:
                raise invalid(f"data has at most {DATA_MAX} bytes", field="data")
            text = f"{text}\n{data}"
        return Note(self._desk.now(), stored.job.attempt, percent, text)

    async def _keep(self, stored: Stored, note: Note) -> None:
        job, store = stored.job, self._desk.engine.store
        now, lease = store.now(), job.lease or ""
        await store.note([(key_of(job), lease, note)], now=now)
        if job.wire:
            own = kept_of(stored.body.meta).extras.visibility_ms
            usual = job.lease_us or PROFILES[ProfileName.OJS].lease_us
            length = usual if own is None else own * 1_000
            await store.extend([(lease, now + length)], now=now)
            await self._stalls.heard([stored])

    # --- checkpoints ----------------------------------------------------------------------------

    async def save(self, call: Call) -> Reply:
        """Save where a job is, instead of what was saved before."""
        name, saved = call.param("id"), read_body(call, _Saved)
        if isinstance(saved.state, UnsetType):
            raise invalid("state is needed", field="state")
        stored = await self._desk.stored(call, name)
        before = _read(stored)
        number = 1 if before is None or before.deleted else before.sequence + 1
        made = _Checkpoint(saved.state, number, told(self._desk.now()))
        await self._store(call, stored, name, made)
        return self._desk.reply(_checkpoint_shown(made, name))

    async def load(self, call: Call) -> Reply:
        """What was saved last."""
        name = call.param("id")
        found = _read(await self._desk.stored(call, name))
        if found is None or found.deleted:
            raise missing("checkpoint of job", name)
        return self._desk.reply(_checkpoint_shown(found, name))

    async def forget(self, call: Call) -> Reply:
        """Forget what was saved."""
        name = call.param("id")
        stored = await self._desk.stored(call, name)
        found = _read(stored)
        if found is not None and not found.deleted:
            gone = _Checkpoint(Raw(b"null"), 0, told(self._desk.now()), deleted=True)
            await self._store(call, stored, name, gone)
        return self._desk.reply({"deleted": True, "job_id": name})

    async def _store(self, call: Call, stored: Stored, name: str, made: _Checkpoint) -> None:
        text = msgspec.json.encode(made).decode()
        need_result("checkpoint", text)
        command, by = j.Checkpoint(digest=digest_of(text)), call.caller.actor
        change = Change(key_of(stored.job), command, by, beside=Beside(checkpoint=text))
        [answer] = await self._desk.engine.carry_out([change])
        if isinstance(answer, Refusal):
            raise conflict(stored.job, name, "save a checkpoint of", "a live state")


def progress_shown(stored: Stored, name: str) -> dict[str, Any]:
    """How far a job has said it is."""
    note = stored.note
    shown: dict[str, Any] = {
        "job_id": name,
        "state": OJS.word(stored.job),
        "progress": None,
    }
    if note is None or note.percent is None:
        return shown
    is_done = stored.job.state == "completed"
    message, _, data = note.text.partition("\n")
    shown["progress"] = 1.0 if is_done else note.percent / _PARTS
    shown["message"] = message
    shown["updated_at"] = told(note.at)
    if data:
        shown["data"] = Raw(data.encode())
    return shown


def _read(stored: Stored) -> _Checkpoint | None:
    """What was saved over this surface; a handler of another way in may save anything."""
    if stored.checkpoint is None:
        return None
    try:
        return msgspec.json.decode(stored.checkpoint, type=_Checkpoint)
    except msgspec.DecodeError:
        at = told(stored.job.last_at)
        return _Checkpoint(Raw(stored.checkpoint.encode()), 1, at)


def _checkpoint_shown(found: _Checkpoint, name: str) -> dict[str, Any]:
    return {
        "job_id": name,
        "state": found.state,
        "sequence": found.sequence,
        "created_at": found.created_at,
    }


def checkpoint_of(stored: Stored) -> dict[str, Any] | None:
    """What was saved, as a job that is fetched again brings it along."""
    found = _read(stored)
    if found is None or found.deleted:
        return None
    return {"state": found.state, "sequence": found.sequence}
