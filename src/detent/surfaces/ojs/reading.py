"""A job as it is sent becomes a job that is asked for; what cannot be is refused with its field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from detent.engine.asks import Ask
from detent.engine.dropping import DROP
from detent.engine.lasting import KEEP
from detent.engine.limits import need_job
from detent.lifecycle.profile import Deadlines, ProfileName
from detent.lifecycle.views import OJS_PRIORITIES
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.policies import Facts, Limits, limits_of, retry_of, unique_of
from detent.surfaces.ojs.terms import TERMS, terms_of
from detent.surfaces.ojs.wire import instant, public_tenant, seconds, span, span_ms

EXTRAS: Final = "$ojs"
"""Where in its metadata a job keeps what only Open Job Spec asks to be kept."""
VETO: Final = "ojs_validate"
"""The mark by which a test suite has a job refused."""
TIMEOUT_US: Final = 1_800_000_000
"""How long an attempt may take if nobody says so."""
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_TYPE = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)*")
_QUEUE = re.compile(r"[a-z0-9][a-z0-9\-.]*")
_QUEUE_MAX, _TYPE_MAX, _PRIORITY_MAX, _NAME_MAX = 128, 255, 100, 255

_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_OPTIONS = TERMS | frozenset(
    {
        "queue",
        "priority",
        "retry",
        "retry_policy",
        "unique",
        "timeout_ms",
        "timeout",
        "visibility_timeout_ms",
        "visibility_timeout",
        "scheduled_at",
        "delay_until",
        "expires_at",
        "enqueue_ttl",
        "tags",
        "rate_limit",
        "pending",
        "metadata",
    }
)
_OWN = frozenset({"type", "args", "id", "meta", "schema", "options"})
_SERVERS = frozenset(
    {
        "specversion",
        "state",
        "attempt",
        "max_attempts",
        "created_at",
        "activated_at",
        "enqueued_at",
        "started_at",
        "completed_at",
        "cancelled_at",
        "discarded_at",
        "cancel_requested_at",
        "error",
        "errors",
        "result",
        "retry_delay_ms",
        "next_attempt_at",
        "next_retry_at",
        "parent_results",
        "workflow_id",
        "parent_id",
        "root_id",
        "worker_id",
        "previous_state",
        "progress",
        "checkpoint",
        "lease",
    }
)
"""What the server sets: whatever a client says about it is not heard."""
_KNOWN = _OWN | _OPTIONS | _SERVERS
_UNECHOED = frozenset({"queue", "priority", "retry", "retry_policy", "tags", "pending"})
"""Options that are shown as what they came to, so that nobody must keep how they were written."""
_ECHOED = ("unique", "rate_limit", *sorted(TERMS))
_USUAL = Deadlines(active_us=TIMEOUT_US)


class Extras(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job keeps for this surface alone: to be echoed, or looked at when it is fetched."""

    fields: dict[str, Raw] = {}
    scheduled_at: str | None = None
    expires_at: str | None = None
    timeout_ms: int | None = None
    visibility_ms: int | None = None
    policies: dict[str, Raw] = {}
    stall_ms: int | None = None


_NO_EXTRAS = Extras()


class Wanted(msgspec.Struct, frozen=True):
    """A job that is asked for, and what must be seen to before it is made."""

    ask: Ask
    limits: Limits | None = None
    keeps_schedule: bool = False
    said: frozenset[str] = frozenset()
    """The options that it came with, and `on_exhaustion` if its retry policy says that."""


class Reader:
    """Reads jobs for one tenant at one moment. `vetoes` lets test suites refuse jobs by a mark."""

    def __init__(self, tenant: str, now: int, *, vetoes: bool = False) -> None:
        self._tenant = tenant
        self._now = now
        self._vetoes = vetoes

    def read(self, body: bytes, defaults: Mapping[str, Raw] | None = None) -> Wanted:
        """The job in a JSON object; `defaults` are options that it may override."""
        return self.job(object_of(body), defaults)

    def job(self, fields: Mapping[str, Raw], defaults: Mapping[str, Raw] | None = None) -> Wanted:
        """The same for an object that has been taken apart already."""
        type_, payload = _type_of(fields), _args_of(fields)
        raw = {**(defaults or {}), **_options_of(fields)}
        options = _values(raw)
        meta = _meta_of(fields, raw.get("metadata"))
        self._need_no_veto(meta, payload)
        self._need_tenant(meta)
        run, expires = self._start(options), self._end(options)
        visibility, timeout = _visibility(options), _timeout(options)
        terms = terms_of(options, timeout)
        kept = _NO_EXTRAS
        if not (fields.keys() <= _KNOWN and options.keys() <= _UNECHOED):
            kept = Extras(
                fields={name: fields[name] for name in fields.keys() - _KNOWN},
                scheduled_at=run and run[1],
                expires_at=expires and expires[1],
                timeout_ms=_ms(timeout),
                visibility_ms=_ms(visibility),
                policies={name: raw[name] for name in _ECHOED if name in options},
                stall_ms=_ms(terms.stall_us),
            )
        queue = need_queue(options.get("queue", "default"))
        limits = limits_of(options.get("rate_limit"))
        ask = Ask(
            type=type_,
            payload=payload,
            meta=_meta_text(_dropping(terms.kept(meta), limits), kept),
            tags=_tags(options.get("tags", [])),
            schema=_text_or_none("schema", fields.get("schema")),
            key=None if limits is None else limits.key,
            id=_id_of(fields),
            tenant=self._tenant,
            profile=ProfileName.OJS,
            queue=queue,
            priority=_priority(options.get("priority", 0)),
            run_at=run and run[0],
            expires_at=expires and expires[0],
            ttl_us=_ttl(options),
            deadlines=_USUAL if timeout is None else Deadlines(active_us=timeout),
            held=_flag("pending", options.get("pending", False)),
            retry=terms.retried(retry_of(options.get("retry", options.get("retry_policy")))),
            unique=self._unique(options.get("unique"), type_, queue, payload, meta),
        )
        need_job(ask)
        choice = options.get("unique") or {}
        keeps_schedule = choice.get("on_conflict") == "replace_except_schedule"
        return Wanted(ask, limits, keeps_schedule, _said(options))

    def _unique(
        self, policy: Any, type_: str, queue: str, payload: str, meta: Mapping[str, Raw]
    ) -> Any:
        if policy is None:
            return None
        args = msgspec.json.decode(payload)
        told = {name: msgspec.json.decode(value) for name, value in meta.items()}
        return unique_of(policy, Facts(type_, queue, args, told))

    def _start(self, options: Mapping[str, Any]) -> tuple[int, str] | None:
        for name in ("scheduled_at", "delay_until"):
            if name in options:
                return instant(name, options[name], self._now)
        return None

    def _end(self, options: Mapping[str, Any]) -> tuple[int, str] | None:
        given = options.get("expires_at")
        return None if given is None else instant("expires_at", given, self._now)

    def _need_tenant(self, meta: Mapping[str, Raw]) -> None:
        """A job that says whose it is must come to them; without tenants nobody is asked."""
        tenant, raw = public_tenant(self._tenant), meta.get("tenant_id")
        said = None if raw is None or not tenant else _plain("meta.tenant_id", raw)
        if isinstance(said, str) and said != tenant:
            why = f"meta.tenant_id is {said[:40]!r}, and the request is for {tenant[:40]!r}"
            raise invalid(why, field="meta.tenant_id")

    def _need_no_veto(self, meta: Mapping[str, Raw], payload: str) -> None:
        if self._vetoes and bytes(meta.get(VETO, b"")) == b"true" and payload == "[]":
            raise Problem(422, "x_validation_failed", "a middleware has refused the job")


# --- objects ----------------------------------------------------------------------------------


def object_of(body: bytes | Raw) -> dict[str, Raw]:
    """The fields of a JSON object, each still as it was written."""
    if not body:
        raise Problem(400, "invalid_payload", "the request has no body; a JSON object is needed")
    try:
        return _OBJECT.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"the body is no JSON object: {error}"
        raise Problem(400, "invalid_payload", why) from None


def objects_of(field: str, raw: Raw | None, most: int) -> list[dict[str, Raw]]:
    """The objects in an array that must not be empty."""
    try:
        found = None if raw is None else msgspec.json.decode(raw, type=list[dict[str, Raw]])
    except (msgspec.DecodeError, RecursionError):
        found = None
    if not found:
        raise invalid(f"{field} must be an array of objects, at least one", field=field)
    if len(found) > most:
        why = f"{field} has {len(found)} items; {most} is the most"
        raise Problem(413, "batch_too_large", why, max_batch_size=most)
    return found


def _plain(name: str, raw: Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        raise invalid(f"{name} cannot be read", field=name) from None


def _values(raw: Mapping[str, Raw]) -> dict[str, Any]:
    """What options say; those that say null say nothing."""
    found: dict[str, Any] = {}
    for name, one in raw.items():
        value = None if name == "metadata" else _plain(name, one)
        if value is not None:
            found[name] = value
    return found


def _said(options: Mapping[str, Any]) -> frozenset[str]:
    retry = options.get("retry", options.get("retry_policy")) or {}
    is_told = retry.get("on_exhaustion") is not None
    return frozenset(options) | ({"on_exhaustion"} if is_told else set())


def _is_null(raw: Raw | None) -> bool:
    return raw is None or bytes(raw) == b"null"


# --- fields -----------------------------------------------------------------------------------


def need_queue(value: object) -> str:
    """A name that a queue can have."""
    if isinstance(value, str) and len(value) <= _QUEUE_MAX and _QUEUE.fullmatch(value):
        return value
    why = f"queue must have lower case letters, digits, - and ., at most {_QUEUE_MAX}"
    raise invalid(why, field="queue")


def need_text(field: str, value: object) -> str:
    """A name that can be kept and shown anywhere."""
    if isinstance(value, str) and 0 < len(value) <= _NAME_MAX and value.isprintable():
        return value
    raise invalid(f"{field} must be 1 to {_NAME_MAX} printable characters", field=field)


def need_id(value: object) -> str:
    """An id that a client may choose."""
    if isinstance(value, str) and ID.fullmatch(value):
        return value
    raise invalid("id must be a lower case UUID of version 7", field="id")


def _id_of(fields: Mapping[str, Raw]) -> str | None:
    raw = fields.get("id")
    return None if _is_null(raw) else need_id(_plain("id", raw or Raw(b"null")))


def _type_of(fields: Mapping[str, Raw]) -> str:
    value = None if "type" not in fields else _plain("type", fields["type"])
    if isinstance(value, str) and len(value) <= _TYPE_MAX and _TYPE.fullmatch(value):
        return value
    raise invalid("type is needed: lower case words with dots between them", field="type")


def _args_of(fields: Mapping[str, Raw]) -> str:
    raw = fields.get("args")
    text = b"" if raw is None else bytes(raw)
    if not text.startswith(b"["):
        raise invalid("args is needed, and must be an array", field="args")
    return text.decode()


def _options_of(fields: Mapping[str, Raw]) -> dict[str, Raw]:
    """Options, wherever they stand: those under `options` count more."""
    found = {name: fields[name] for name in fields.keys() & _OPTIONS}
    raw = fields.get("options")
    if _is_null(raw):
        return found
    try:
        found |= _OBJECT.decode(raw or b"")
    except (msgspec.DecodeError, RecursionError):
        raise invalid("options must be an object", field="options") from None
    return found


def _meta_of(fields: Mapping[str, Raw], metadata: Raw | None) -> dict[str, Raw]:
    found: dict[str, Raw] = {}
    for name, raw in (("meta", fields.get("meta")), ("metadata", metadata)):
        if raw is None or _is_null(raw):
            continue
        try:
            found |= _OBJECT.decode(raw)
        except (msgspec.DecodeError, RecursionError):
            raise invalid(f"{name} must be an object", field=name) from None
    for ours in (EXTRAS, KEEP):
        if ours in found:
            raise invalid(f"meta: {ours} is not yours to set", field="meta")
    return found


def _dropping(meta: Mapping[str, Raw], limits: Limits | None) -> Mapping[str, Raw]:
    """The metadata with what becomes of the job where its limit has no room."""
    is_told = limits is not None and limits.drops
    return {**meta, DROP: Raw(b"true")} if is_told else meta


def _meta_text(meta: Mapping[str, Raw], extras: Extras) -> str:
    if extras == _NO_EXTRAS:
        return msgspec.json.encode(meta).decode() if meta else "{}"
    return msgspec.json.encode({**meta, EXTRAS: extras}).decode()


def _text_or_none(name: str, raw: Raw | None) -> str | None:
    if raw is None or _is_null(raw):
        return None
    value = _plain(name, raw)
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string", field=name)
    return value


def _priority(value: object) -> int:
    if isinstance(value, str) and value.upper() in OJS_PRIORITIES:
        return OJS_PRIORITIES[value.upper()]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _PRIORITY_MAX:
        return value
    names = ", ".join(OJS_PRIORITIES)
    most = _PRIORITY_MAX
    raise invalid(f"priority must be {names}, or a number from -{most} to {most}", field="priority")


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise invalid("tags must be an array of strings", field="tags")
    return tuple(value)


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false", field=name)
    return value


def _ms(length_us: int | None) -> int | None:
    return None if length_us is None else length_us // 1_000


def _ttl(options: Mapping[str, Any]) -> int | None:
    return seconds("enqueue_ttl", options["enqueue_ttl"]) if "enqueue_ttl" in options else None


def _visibility(options: Mapping[str, Any]) -> int | None:
    if "visibility_timeout_ms" in options:
        return span_ms("visibility_timeout_ms", options["visibility_timeout_ms"])
    value = options.get("visibility_timeout")
    return None if value is None else max(span("visibility_timeout", value), 1)


def _timeout(options: Mapping[str, Any]) -> int | None:
    if "timeout_ms" in options:
        return span_ms("timeout_ms", options["timeout_ms"])
    return None if "timeout" not in options else seconds("timeout", options["timeout"])
