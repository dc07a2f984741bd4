"""Jobs that come into being with the end of another one, in the same commit."""

from __future__ import annotations

from collections.abc import Iterable

from detent.engine.asks import Ask, born
from detent.engine.identity import Identity
from detent.engine.secrets import Secrets
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor, Refusal
from detent.stores.api import New


class Followers:
    """Makes them."""

    def __init__(self, identity: Identity, secrets: Secrets) -> None:
        self._identity = identity
        self._secrets = secrets

    def of(
        self, asked: Iterable[tuple[Ask, str]], after: str, command_id: str, now: int
    ) -> tuple[New, ...]:
        """Those that are asked for, each with its id; whose they are tells the job before them."""
        by = By(Actor.USER, f"job {after}")
        made: list[New] = []
        for ask, job_id in asked:
            ctx = j.Context(by, command_id, place=self._identity.place(), reason=ask.reason)
            new = born(self._secrets.sealed(ask, job_id), job_id, now, ctx)
            if isinstance(new, Refusal):
                raise new.error()
            made.append(new)
        return tuple(made)
