"""A job in the hands of an engine, and what may be said about it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, Protocol

import msgspec

from detent.errors import EngineRefused

_OVER: Final = frozenset({"JOB_ENDED", "LEASE_ENDED", "NOT_HOLDER", "UNKNOWN_JOB"})
"""Whatever is said about this job, nobody listens any more."""


class Asker(Protocol):
    """The way to the server."""

    async def ask(self, event: str, told: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message."""
        ...


class JobFault(Exception):
    """Why a job failed, under a code of the engine's own, such as `BAD_ASSET`."""

    def __init__(
        self, code: str, message: str = "", *, details: Any = None, retryable: bool | None = None
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code)
        told = {"code": code, "message": message, "details": details, "retryable": retryable}
        self.told = {name: value for name, value in told.items() if value is not None}


class Gone(Exception):
    """The job is not ours any more."""


class Pushed(msgspec.Struct, frozen=True, rename="camel"):
    """A job as it comes."""

    job_id: str
    job_type: str
    lease: str
    payload: Any = None
    attempt: int = 1
    deadline_at: int | None = None


class PushedJob:
    """A job in hand. `stopping` says why it is to stop, once it is; its handler is cancelled."""

    def __init__(self, asker: Asker, pushed: Pushed) -> None:
        self.id = pushed.job_id
        self.type = pushed.job_type
        self.payload = pushed.payload
        self.attempt = pushed.attempt
        self.deadline_at = pushed.deadline_at
        self.lease = pushed.lease
        self.stopping: str | None = None
        self._asker = asker
        self.task: asyncio.Task[None] | None = None

    async def progress(self, percent: float, message: str = "") -> None:
        """How far it is, from 0 to 100."""
        await self.report("job_progress", progress=percent, message=message)

    async def log(self, *lines: str) -> None:
        """Say something, in order."""
        await self.report("job_log", lines=list(lines))

    async def report(self, event: str, **more: Any) -> None:
        """Tell the server about it; whoever is not entitled any more hears that as a cancel."""
        told = {"jobId": self.id, "lease": self.lease, **more}
        reply = await self._asker.ask(event, told)
        error = reply.get("error")
        if error is None:
            self.deadline_at = reply.get("deadlineAt", self.deadline_at)
        elif error.get("code") in _OVER:
            raise Gone
        elif error.get("status") != "running" or event not in ("job_ack", "job_started"):
            # Otherwise it was heard the first time, and only the answer got lost.
            raise EngineRefused(str(error.get("message")), code=error.get("code"), event=event)

    def stop(self, why: str) -> None:
        """Let its handler end where it waits."""
        self.stopping = self.stopping or why
        if self.task is not None:
            self.task.cancel()


def plain(result: Any) -> Any:
    """The result, if it can be sent."""
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise JobFault("BAD_RESULT", f"the result is no JSON: {error}") from None
    return result
