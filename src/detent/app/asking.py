"""Turns calls of jobs, with their options, into what the engine is asked to enqueue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from detent.app.options import (
    CallOptions,
    deadlines_of,
    instant_of,
    losses_of,
    retry_of,
    start_of,
    uniqueness_of,
)
from detent.app.tracing import trace_of
from detent.engine import moulds
from detent.engine.asks import Ask
from detent.engine.otel_spans import current
from detent.engine.secrets import REDACTED, redacted_at
from detent.engine.trace import Trace
from detent.errors import BadArguments, BadOption, DetentError
from detent.lifecycle.event import By
from detent.runtime.encoding import BadValue, digest_of, encode
from detent.runtime.hiding import Hidden
from detent.runtime.outcomes import us_of
from detent.runtime.signature import Signature
from detent.stores.api import Idempotency, Limit
from detent.stores.births import Mould

IDEMPOTENCY_US = 24 * 3_600 * 1_000_000
"""How long an idempotency key stands for its first request."""

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(Generic[R_co]):
    """A job that could be enqueued: its type, its arguments as they will be stored, its options."""

    def __init__(
        self,
        signature: Signature,
        payload: str,
        options: CallOptions,
        conn: Any = None,
        mould: Mould | None = None,
    ) -> None:
        self.signature = signature
        self.payload = payload
        self.options = options
        self.conn = conn
        """The connection in whose transaction it is to be enqueued, if it names one."""
        self.mould = mould
        """What it shares with all calls of these options, if that is all but its arguments."""
        self.caught = current()
        """The trace that was active when the call was made; the option overrules it."""

    def __repr__(self) -> str:
        return f"<Call {self.signature.name} {self.shown}>"

    def copy(self) -> Call[R_co]:
        """The same call with options of its own, which can be changed."""
        own: Call[R_co] = Call(self.signature, self.payload, self.options.copy(), self.conn)
        own.caught = self.caught
        return own

    @property
    def shown(self) -> str:
        """The payload without its secrets: for people, and for whatever is kept in the clear."""
        return redacted_at(self.payload, self.secret)

    @property
    def secret(self) -> tuple[str, ...]:
        """The places in the payload that are locked."""
        return self.signature.secret(self.payload)

    @property
    def tenant(self) -> str:
        """Whose job it will be."""
        return self.options.get("tenant", "")

    def limit(self) -> dict[tuple[str, str], Limit]:
        """The limit that it is to run under, by tenant and key, if it names one."""
        limit, key = self.options.get("limit"), self.key
        return {} if limit is None or key is None else {(self.tenant, key): limit.row()}

    def ask(self, now: int) -> Ask:
        """What the engine is asked for."""
        options = self.options
        return Ask(
            type=self.signature.name,
            payload=self.payload,
            meta=self._meta(),
            tags=tuple(options.get("tags", ())),
            key=self.key,
            tenant=self.tenant,
            queue=options.get("queue", "default"),
            priority=options.get("priority", 0),
            run_at=start_of(options, now),
            expires_at=self._expires_at(now),
            deadlines=deadlines_of(options),
            retry=retry_of(options),
            losses_allowed=losses_of(options),
            unique=uniqueness_of(options, self._fingerprint()) if "unique" in options else None,
            idempotency=self._idempotency(now),
            secret=self.secret,
            trace=self._trace(),
        )

    def _trace(self) -> Trace | None:
        if "trace" in self.options:
            return trace_of(self.options["trace"])
        # A program that passes it on by hand knows better than whoever watches it.
        return None if "traceparent" in self.options.get("meta", {}) else self.caught

    def _named(self) -> dict[str, Any]:
        """The arguments by name, without secrets: keys and digests are stored in the clear.

        What is left out is what it would be: both are the same call.
        """
        named: dict[str, Any] = msgspec.json.decode(self.shown)["kwargs"]
        return {**self.signature.defaults, **named}

    @property
    def key(self) -> str | None:
        """What limits count it under; a limit without a key counts all jobs of the type."""
        key = self.options.get("key")
        if key is None:
            return self.signature.name if "limit" in self.options else None
        try:
            told = key.format_map(self._named()) if "{" in key else key
        except (KeyError, IndexError, ValueError) as error:
            why = f"key {key!r} asks for {error}, which is no argument of this call"
            raise BadOption(f"{self.signature.name}: {why}", option="key", value=key) from None
        self._need_open("key", REDACTED not in told)
        return told

    def _fingerprint(self) -> str:
        unique = self.options.get("unique")
        chosen = None if isinstance(unique, bool) or unique is None else unique.by
        if chosen is None:
            counted: object = {**msgspec.json.decode(self.shown), "kwargs": self._named()}
        else:
            self._need_open("unique", not {f"kwargs.{name}" for name in chosen} & set(self.secret))
            named = self._named()
            counted = {name: named.get(name) for name in chosen}
        told = msgspec.json.encode([self.signature.name, counted], order="deterministic")
        return digest_of(told.decode())

    def _need_open(self, option: str, is_open: bool) -> None:
        if not is_open:
            why = f"{option} names a secret argument, and what it says is stored in the clear"
            raise BadOption(f"{self.signature.name}: {why}", option=option)

    def _meta(self) -> str:
        try:
            return encode(dict(self.options.get("meta", {}))).decode()
        except BadValue as bad:
            why = f"meta cannot be written as JSON: {bad}"
            raise BadOption(f"{self.signature.name}: {why}", option="meta") from None

    def _expires_at(self, now: int) -> int | None:
        expires = self.options.get("expires")
        if expires is None:
            return None
        if isinstance(expires, datetime):
            return instant_of("expires", expires)
        return now + us_of(expires)

    def _idempotency(self, now: int) -> Idempotency | None:
        key = self.options.get("idempotency_key")
        if key is None:
            return None
        digest = digest_of(self.signature.name + self.shown)
        return Idempotency(key, digest, now + IDEMPOTENCY_US)


_MOULDED = frozenset({"queue", "priority", "tenant", "retry", "losses", "timeout", "queue_timeout"})
"""Options that say the same for all calls, whatever their arguments and whenever they are made."""


def mould_of(signature: Signature, options: CallOptions, by: By) -> Mould | None:
    """What calls of a job with these options have in common, if that is all but their arguments."""
    if not options.keys() <= _MOULDED or signature.hidden != Hidden():
        return None
    any_call: Call[Any] = Call(signature, "[]", options)
    any_call.caught = None
    try:
        return moulds.mould_of(any_call.ask(0), by)
    except DetentError:
        # What is wrong with them is said when one is enqueued.
        return None


def need_calls(calls: Iterable[Call[R]]) -> list[Call[R]]:
    """The calls, none of which is something else; a lone one is not many."""
    if isinstance(calls, Call):
        raise BadArguments("This takes several calls, and was given one: put it in a list", path="")
    found = list(calls)
    if not all(isinstance(one, Call) for one in found):
        raise _no_call(found)
    return found


def conn_of(calls: Sequence[Call[Any]], conn: Any = None) -> Any:
    """The one connection that all of them are to be enqueued through; `None` is the store."""
    named = [call.conn for call in calls]
    if conn is None and named.count(None) == len(named):
        return None
    chosen = conn if conn is not None else next(iter(named), None)
    if any(one is not chosen and (one is not None or conn is None) for one in named):
        why = "Some of these calls name another connection than the rest, or none"
        raise BadOption(f"{why}: enqueue them apart", option="conn")
    return chosen


def _no_call(calls: Sequence[object]) -> BadArguments:
    """What to say about the first of them that is no call."""
    at, found = next((at, one) for at, one in enumerate(calls) if not isinstance(one, Call))
    kind = type(found).__name__
    fix = {
        "Job": f"bind its arguments: {getattr(found, 'name', '')}.bind(...)",
        "Handle": "it is enqueued already; make a call with bind",
        "Workflow": "a workflow is no part of another; a list of calls is a step of one",
        "list": "give them one by one: group(*calls)",
        "generator": "give them one by one: group(*calls)",
    }.get(kind, "make calls with bind: job.enqueue_many(job.bind(x) for x in things)")
    return BadArguments(f"Item {at} is a {kind} and not a call; {fix}", path=f"[{at}]")


def need_no_conn(calls: Iterable[Call[Any]], what: str) -> None:
    """Refuse calls that are to be part of a transaction where they cannot be."""
    for call in calls:
        if call.conn is not None:
            why = f"{what} cannot be part of a transaction of your own"
            raise BadOption(f"{call.signature.name}: {why}: bind it without conn", option="conn")
