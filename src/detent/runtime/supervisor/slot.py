"""A slot: the named place that outlives its instances and remembers what they left behind."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from msgspec.structs import replace

from detent.errors import DetentError, StartFailed
from detent.lifecycle.worker import Birth, Instance
from detent.runtime.supervisor.body import Body, Born, Handover
from detent.runtime.supervisor.entries import SlotRow
from detent.runtime.supervisor.function import FunctionBody, WorkerContext
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.pacing import Pacing
from detent.runtime.supervisor.spec import Spec
from detent.runtime.supervisor.tree import Tree


class Unmade(FunctionBody):
    """Stands in for a body that could not be made: it fails when it is spawned, like any other."""

    def __init__(self, error: StartFailed) -> None:
        super().__init__(_nothing)
        self._error = error

    async def spawn(self, handover: Handover) -> Born | None:  # noqa: ARG002 - nobody is there
        """Say why there is nothing to spawn."""
        raise self._error


class Slot:
    """`live` is the instance that counts; one that was replaced ends beside it, unheard."""

    def __init__(self, tree: Tree, spec: Spec, path: str, pacing: Pacing) -> None:
        self.tree = tree
        self.spec = spec
        self.path = path
        self.pacing = pacing
        self.live: Live | None = None
        self.is_wanted = True
        """Somebody wants it up, and no policy has given it up."""
        self.is_given_up = False
        """A policy has, and nobody else: other settings are another chance."""
        self.spared_s = 0.0
        """How long its next instance may live before it is replaced for its memory."""
        self.is_awaited = False
        """It has no instance yet, but a task is about to give it one."""
        self.last: Instance | None = None
        self.row = tree.journal.slot(path) or SlotRow(path, str(uuid4()))
        self.changed = asyncio.Event()
        """What holds its start may have changed: look again."""
        self.filling = asyncio.Lock()
        """One instance is made at a time: with a full disk that takes longer than a moment."""
        self.busy = asyncio.Lock()
        """One change of what the slot is at a time; stopping never waits for it."""
        tree.journal.put_slot(self.row)
        self.look_back()

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_suspended(self) -> bool:
        return self.row.suspended

    def look_back(self) -> None:
        """Who was here before. In a new slot nobody was, though one before it was called so too."""
        self.last = self.tree.journal.last_of(self.path) if self.row.attempts else None

    def build(self, spec: Spec) -> Live:
        """A fresh instance in a fresh body; nothing of it runs yet."""
        body = _made(self.path, spec)
        birth = Birth(str(uuid4()), self.path, suspendable=body.suspendable)
        live = Live(self.tree, birth, body, spec.kind)
        live.needs_ready_signal = spec.needs_ready_signal
        return live

    def hand_over(self, live: Live) -> Handover:
        """What the new instance is told. The attempt is counted on disk before it is made."""
        self.keep(attempts=self.row.attempts + 1)
        last, row = self.last, self.row
        live.is_hushed = row.suspended
        return Handover(
            instance=live.id,
            slot=self.path,
            resume_id=row.resume_id,
            attempt=row.attempts,
            prev_exit=None if last is None else last.exit_code,
            prev_status=None if last is None else last.status,
            prev_cause=None if last is None or last.cause is None else str(last.cause),
            suspended=row.suspended,
        )

    def keep(self, **changes: object) -> None:
        """Change what outlives instances and supervisors, on disk first."""
        row = replace(self.row, **changes)
        self.tree.journal.put_slot(row)
        self.row = row


def _made(path: str, spec: Spec) -> Body:
    try:
        return spec.make()
    except Exception as error:
        code = error.code if isinstance(error, DetentError) else type(error).__name__
        failed = StartFailed(f"The worker of slot {path} could not be made: {error}", slot=path)
        failed.fields["error_code"] = code
        failed.__cause__ = error
        return Unmade(failed)


async def _nothing(_: WorkerContext) -> None:
    """What a stand-in would do."""
