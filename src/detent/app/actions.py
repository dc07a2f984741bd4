"""The jobs of an app as actions that a web application may start."""

from __future__ import annotations

from collections.abc import Sequence

from detent.app.asking import Call
from detent.app.detent import Detent
from detent.engine.asks import Ask

__all__ = ["DeclaredActions"]


class DeclaredActions:
    """What the app declares: which jobs there are, what they take, and their options."""

    def __init__(self, app: Detent) -> None:
        self._app = app

    @property
    def names(self) -> Sequence[str]:
        """What may be started."""
        return tuple(self._app.jobs)

    def misfits(self, action: str, payload: str) -> dict[str, str]:
        """What is wrong with the inputs, by field."""
        return self._app.jobs[action].signature.misfits(payload)

    def ask(self, action: str, payload: str, now: int) -> Ask:
        """The job, as its declaration has it."""
        job = self._app.jobs[action]
        return Call(job.signature, payload, job.options, None).ask(now)
