"""The actions and the engine job types of an app, in the form that servers take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from detent.app.asking import Call
from detent.app.detent import Detent
from detent.engine.asks import Ask


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


class DeclaredTypes:
    """Job types for engines: with a JSON Schema, or with the signature of a function."""

    def __init__(self, app: Detent) -> None:
        self._app = app

    @property
    def names(self) -> Sequence[str]:
        """What may be submitted."""
        return (*self._app.engine_types, *self._app.jobs)

    @property
    def schemas(self) -> Mapping[str, bytes]:
        """The JSON Schemas of those that have one, by name."""
        return self._app.engine_types

    def misfits(self, name: str, payload: dict[str, Any]) -> dict[str, str]:
        """What is wrong with the arguments of a function, by field."""
        text = msgspec.json.encode({"args": (), "kwargs": payload}).decode()
        return self._app.jobs[name].signature.misfits(text)
