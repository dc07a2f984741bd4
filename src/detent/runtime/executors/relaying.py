"""Does for a run in another process what its context would do here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec

from detent.engine.asks import Ask
from detent.errors import DetentError
from detent.runtime.ending import Raised, Written
from detent.runtime.executors.api import Ended, Run, Rung, Stopped
from detent.runtime.executors.pool.messages import (
    Answer,
    Begin,
    End,
    Fault,
    Find,
    Follow,
    Follower,
    Found,
    Noted,
    Order,
    Save,
    Spoken,
    Word,
    fault_of,
)
from detent.runtime.outcomes import Cancelled, Snooze
from detent.stores.api import Limit


def begin_of(run: Run, memory: int | None) -> Begin:
    """The run as it is sent: with its secrets, without what only the store needs to know.

    `memory` is for those that say nothing about it.
    """
    own = run.signature.means.memory_bytes
    body = msgspec.structs.replace(run.stored.body, payload=run.opened.payload)
    stored = msgspec.structs.replace(run.stored, body=body, result=None, failures=(), note=None)
    return Begin(stored, list(run.opened.values), own if own is not None else memory)


def ended_of(end: End, *, is_ours: bool) -> Ended:
    """How it ended, as if it had been here; `is_ours`: whether it was us who interrupted it."""
    if end.is_interrupted and is_ours:
        return Stopped(Rung.INTERRUPTED)
    if end.told is not None:
        return end.told
    if end.is_cancelled:
        return Raised(Cancelled(end.reason))
    if end.snooze_us is not None:
        return Raised(Snooze(timedelta(microseconds=end.snooze_us), end.reason))
    return Written(end.result or "null")


async def relay(run: Run, word: Word, send: Callable[[Order], None]) -> None:
    """Do what the run says or asks for; every call is answered."""
    match word:
        case Spoken():
            run.ctx.log(word.text, word.level)
        case Noted():
            run.ctx.progress(word.percent, word.text)
        case Save() | Find() | Follow():
            send(Answer(word.call, await _fault(run, word, send)))
        case _:
            pass


async def _fault(
    run: Run, word: Save | Find | Follow, send: Callable[[Order], None]
) -> Fault | None:
    try:
        await _done(run, word, send)
    except DetentError as error:
        return fault_of(error)
    except Exception as error:
        # Ours, and not the handler's; but it is the handler that waits for an answer.
        return Fault(DetentError.code, f"{type(error).__name__}: {error}")
    return None


async def _done(run: Run, word: Save | Find | Follow, send: Callable[[Order], None]) -> None:
    reach = run.ctx.bridge.reach
    match word:
        case Save():
            await reach(run.ctx.keep(word.text))
        case Find():
            for result in await reach(run.ctx.found(word.step)):
                send(Found(word.call, result))
        case Follow():
            run.ctx.enqueue(*(_Relayed(one, word.now) for one in word.followers))


class _Relayed:
    """A call that was made elsewhere at `then`, and will be enqueued here."""

    conn = None

    def __init__(self, follower: Follower, then: int) -> None:
        self._follower = follower
        self._then = then

    def ask(self, now: int) -> Ask:
        """What was said relative to the moment of the enqueue moves with it."""
        one, by = self._follower, now - self._then
        run_at, expires_at = one.ask.run_at, one.ask.expires_at
        return msgspec.structs.replace(
            one.ask,
            run_at=run_at + by if run_at is not None and one.is_run_relative else run_at,
            expires_at=(
                expires_at + by if expires_at is not None and one.is_expiry_relative else expires_at
            ),
        )

    def limit(self) -> dict[tuple[str, str], Limit]:
        """The limit that it is to run under."""
        return {(tenant, key): limit for tenant, key, limit in self._follower.limits}
