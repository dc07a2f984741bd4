"""What a handler sees of its own run, and what it says about it.

Saying is cheap: lines and progress are kept here and carried to the store by the runner, now and
then and at the end. Only a checkpoint waits until it is safe, because that is what it is for.
"""

from __future__ import annotations

from collections import deque
from typing import Any, TypeVar, overload

from detent.engine import limits
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.errors import BadOption, BadResult
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Refusal
from detent.runtime.bridge import Bridge, awaiting, blocking
from detent.runtime.encoding import BadValue, Reader, digest_of, encode
from detent.runtime.masking import Mask
from detent.runtime.outcomes import Cancelled
from detent.stores.api import Line, Note, Stored, key_of

__all__ = ["Context", "Heard"]

T = TypeVar("T")
PERCENT_MAX = 100


class Heard:
    """What a run has said and not yet been carried to the store, and what it is to hear.

    Handlers speak from threads of their own: a deque and plain attributes are all they touch.
    """

    def __init__(self) -> None:
        self.lines: deque[Line] = deque()
        self.note: Note | None = None
        self.mask = Mask()
        """What hides the job's secrets, in whatever is said."""
        self.is_cancelled = False

    def take_lines(self) -> tuple[Line, ...]:
        """What was said since the last time."""
        return tuple(self.lines.popleft() for _ in range(len(self.lines)))

    def take_note(self) -> Note | None:
        """The newest progress, if there is any since the last time."""
        note, self.note = self.note, None
        return note


class Context:
    """One attempt at one job. A handler gets it as its first parameter, if that is annotated so."""

    def __init__(self, stored: Stored, engine: Engine, bridge: Bridge, by: By) -> None:
        self._stored = stored
        self._engine = engine
        self._bridge = bridge
        self._by = by
        self._checkpoint = stored.checkpoint
        self.heard = Heard()
        """What the runner carries; not for handlers."""

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self._bridge

    @property
    def job_id(self) -> str:
        """The job's id; the same in every attempt, so a good idempotency key for others."""
        return self._stored.job.id

    @property
    def attempt(self) -> int:
        """How many times the job has been started, this time included."""
        return self._stored.job.attempt

    @property
    def tenant(self) -> str:
        """Whose job it is."""
        return self._stored.job.tenant

    @property
    def cancelled(self) -> bool:
        """Whether the run should stop: a cancel was asked for, or the job is no longer ours."""
        return self.heard.is_cancelled

    def check_cancelled(self) -> None:
        """Raise `Cancelled` if the run should stop; call it wherever stopping is safe."""
        if self.heard.is_cancelled:
            raise Cancelled

    def log(self, text: str, level: str = "info") -> None:
        """A line for the job's log. What cannot be stored is mended: a log never fails a job."""
        plain = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        # Masked before it is cut: half a secret is not recognised any more.
        cut = self.heard.mask(plain)[: limits.LINE_CHARS_MAX]
        self.heard.lines.append(Line(self._engine.store.now(), cut, level))

    def progress(self, percent: float, text: str = "") -> None:
        """How far it is, from 0 to 100; the newest word counts."""
        if not 0 <= percent <= PERCENT_MAX:
            why = f"Progress is from 0 to {PERCENT_MAX} percent, not {percent}"
            raise BadOption(why, option="percent", value=percent)
        said = self.heard.mask(text)
        self.heard.note = Note(self._engine.store.now(), self.attempt, int(percent), said)

    @overload
    def saved(self) -> Any: ...
    @overload
    def saved(self, kind: type[T]) -> T | None: ...
    def saved(self, kind: Any = Any) -> Any:
        """The newest checkpoint of this or an earlier attempt, as that type; `None` if none."""
        return None if self._checkpoint is None else Reader(kind).read(self._checkpoint)

    async def _save(self, value: object) -> None:
        """Keep a checkpoint. When this returns it survives whatever happens to the run."""
        try:
            text = encode(value).decode()
        except BadValue as bad:
            raise BadResult(f"The checkpoint cannot be kept: {bad}", why=bad.why) from None
        limits.need_result("checkpoint", text)
        job = self._stored.job
        command = j.Checkpoint(lease=job.lease, digest=digest_of(text))
        change = Change(key_of(job), command, self._by, beside=Beside(checkpoint=text))
        [answer] = await self._engine.carry_out([change])
        if isinstance(answer, Refusal):
            raise answer.error()
        self._checkpoint = text

    save = blocking(_save)
    asave = awaiting(_save)
