"""Jobs that cannot be opened here for lack of a key wait for a process that has it.

That the key is missing is the fault of whoever started this process, and says nothing about the
job: it goes back at no charge. After a few times nobody seems to have the key; then it is put off,
for longer each time, so that it stands in nobody's way. Whoever lacks a key leaves the whole type
to others for a while, or it would carry every such job away from those that can run it. A secret
that does not open with its own key is broken, here and elsewhere: that is a failure for good.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from detent.engine.commands import Beside, Change
from detent.engine.secrets import Owner
from detent.errors import BadSecretKey, DetentError, SecretError, SecretUnreadable
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, Drain
from detent.lifecycle.retry import ErrorInfo
from detent.stores.api import Failure, Stored, key_of

if TYPE_CHECKING:
    from detent.engine.engine import Engine

_BACK_MAX: Final = 3
"""How often it goes back at once."""
_WAIT_US: Final = 30_000_000
_WAIT_US_MAX: Final = 3_600_000_000
"""How long it is put off: at first so long, then twice as long each time, and never longer."""
_SHUT_S: Final = 1.0
_SHUT_S_MAX: Final = 60.0
"""How long a type is left to others, in the same way."""


def is_keyless(error: DetentError) -> bool:
    """Whether the key is missing, or cannot be read; the secret may be as good as ever."""
    is_missing = isinstance(error, SecretUnreadable) and error.fields.get("why") == "no_key"
    return is_missing or isinstance(error, BadSecretKey)


def put_off(stored: Stored, by: By, error: DetentError, now: int) -> Change:
    """What becomes of a job that somebody claimed and cannot open."""
    job = stored.job
    if PROFILES[job.profile].drain is Drain.FAIL:
        # It runs once, and claimed it was: there is no way back for it.
        return Change(
            key_of(job),
            j.Fail(lease=job.lease, code=error.code),
            by,
            beside=Beside(failure=Failure(job.attempt, now, error.code, error.message)),
            error=ErrorInfo(error.code, retryable=False),
            known=stored,
        )
    return Change(key_of(job), _back(job), by, reason=error.message, known=stored)


def _back(job: j.Job) -> j.Command:
    if job.handed_back < _BACK_MAX:
        return j.HandBack(lease=job.lease)
    if job.state is j.JobState.PENDING:
        # Who was only offered it cannot snooze.
        return j.HandBack(lease=job.lease, delay_us=_wait_us(job.handed_back - _BACK_MAX))
    # As often as it was claimed and neither failed, nor was lost or given back, it was put off.
    before = job.attempt - 1 - job.failures - job.losses - job.handed_back
    return j.Snooze(lease=job.lease, delay_us=_wait_us(before))


def _wait_us(before: int) -> int:
    return min(_WAIT_US << min(max(before, 0), 10), _WAIT_US_MAX)


async def opened_here(engine: Engine, jobs: Sequence[Stored]) -> list[Stored]:
    """Those of a wire worker's jobs whose keys are here, or that are broken; the others go back."""
    good: list[Stored] = []
    back: list[Change] = []
    for one in jobs:
        owner = Owner(one.job.tenant, one.job.id, one.body.type)
        try:
            engine.secrets.opened(one.body.payload, owner)
        except SecretError as error:
            if is_keyless(error):
                by = By(Actor.WORKER, one.job.holder or "")
                back.append(put_off(one, by, error, engine.store.now()))
                continue
        good.append(one)
    if back:
        await _put_back(engine, jobs, back)
    return good


async def _put_back(engine: Engine, jobs: Sequence[Stored], back: Sequence[Change]) -> None:
    try:
        await engine.carry_out(back)
    except BaseException:
        # Whoever waited for the others hears nothing of them either.
        engine.returning.soon(jobs)
        raise


class Shut:
    """Types whose key is not here: others have them for a while, and for longer each time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pauses: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._pauses)

    def met(self, type_: str) -> float | None:
        """One could not be opened: for how long its type is shut; `None` if it is already."""
        if self._is_shut(type_):
            return None
        pause = min(2 * self._pauses.get(type_, _SHUT_S / 2), _SHUT_S_MAX)
        self._pauses[type_] = pause
        self._until[type_] = self._clock() + pause
        return pause

    def opened(self, types: Iterable[str]) -> bool:
        """Some could be: their types are open again; whether any was not."""
        again = self._pauses.keys() & types
        for one in again:
            del self._pauses[one], self._until[one]
        return bool(again)

    def left(self, types: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are open; the same, if all are."""
        if not self._pauses:
            return types
        return tuple(one for one in types if not self._is_shut(one))

    def opens_in_s(self) -> float:
        """For how long nothing more opens; for ever, if nothing is shut."""
        now = self._clock()
        return min((until - now for until in self._until.values() if until > now), default=math.inf)

    def _is_shut(self, type_: str) -> bool:
        return self._until.get(type_, 0.0) > self._clock()
