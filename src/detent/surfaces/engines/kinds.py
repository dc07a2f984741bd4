"""Job types: which there are, and what their payloads must be.

A type is known if the program declares it, if a schema was registered for it, or if an engine has
ever said that it takes it. What does not fit is refused before it is a job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

from detent.engine.json_schema import faults, unfit
from detent.engine.paging import all_records
from detent.stores.api import Record
from detent.surfaces.engines.desk import Desk
from detent.surfaces.engines.faults import BAD, MISSING_FIELD, SCHEMA_INVALID, UNKNOWN_TYPE, Fault
from detent.surfaces.http.exchange import Call, Reply

KIND: Final = "engine-type"
FRESH_US: Final = 1_000_000
_AGAIN_US: Final = 50_000
_SCHEMA_BYTES_MAX: Final = 65_536
_NAME_MAX: Final = 255
_KNOWN_MAX: Final = 10_000
_MISSING: Final = " is missing"
_SHOWN_MAX: Final = 20


class Declared(Protocol):
    """The job types that a program declares, for a server that was told of one."""

    @property
    def names(self) -> Sequence[str]:
        """What may be submitted."""
        ...

    def misfits(self, name: str, payload: dict[str, Any]) -> dict[str, str]:
        """What is wrong with a payload, by field."""
        ...


class _Sent(msgspec.Struct, frozen=True):
    schema: Raw


class Kinds:
    """Knows the types, and holds payloads to them."""

    def __init__(self, desk: Desk, declared: Declared | None) -> None:
        self._desk = desk
        self._declared = declared
        self._schemas: dict[tuple[str, str], tuple[int, Any]] = {}
        self._taken: dict[str, tuple[int, frozenset[str]]] = {}

    async def need_fit(self, tenant: str, name: str, payload: dict[str, Any]) -> None:
        """Refuse a type that nobody knows, and a payload that does not fit."""
        if self._declared is not None and name in self._declared.names:
            _need(name, self._declared.misfits(name, payload))
            return
        schema = await self._schema(tenant, name)
        if schema is not None:
            _need(name, misfits_of(schema, payload))
        elif name not in await self._types(tenant, name):
            why = "no program declares it, no schema is registered, and no engine takes it"
            raise Fault(UNKNOWN_TYPE, f"there is no job type {name}: {why}", field="jobType")

    async def _schema(self, tenant: str, name: str) -> Any:
        at, found = self._schemas.get((tenant, name), (-FRESH_US, None))
        now = self._desk.now()
        if not 0 <= now - at < FRESH_US:
            [record] = await self._desk.engine.store.record([(KIND, tenant, name)])
            found = None if record is None else msgspec.json.decode(record.data or "null")
            if len(self._schemas) >= _KNOWN_MAX:
                self._schemas.clear()
            self._schemas[tenant, name] = (now, found)
        return found

    async def _types(self, tenant: str, name: str) -> frozenset[str]:
        at, found = self._taken.get(tenant, (-FRESH_US, frozenset()))
        now = self._desk.now()
        # What is not among them may have come to another server a moment ago.
        if not 0 <= now - at < (FRESH_US if name in found else _AGAIN_US):
            found = await self._desk.engine.engines.types(tenant)
            if len(self._taken) >= _KNOWN_MAX:
                self._taken.clear()
            self._taken[tenant] = (now, found)
        return found

    def forget(self) -> None:
        """Look again: somebody here has changed what is known."""
        self._schemas.clear()
        self._taken.clear()

    # --- over HTTP ------------------------------------------------------------------------------

    async def put(self, call: Call) -> Reply:
        """Register the JSON Schema of a job type's payload."""
        tenant, name = call.caller.tenant, call.param("jobType")
        if not 1 <= len(name) <= _NAME_MAX:
            raise Fault(BAD, f"a job type has 1 to {_NAME_MAX} characters", field="jobType")
        text = _checked(call.body)
        [record] = await self._desk.engine.store.record([(KIND, tenant, name)])
        version = 1 if record is None else record.version + 1
        if not await self._desk.engine.put(Record(KIND, name, version, text, tenant=tenant)):
            raise Fault("CONFLICT", "somebody else has registered this type meanwhile; try again")
        self.forget()
        return Reply(200, msgspec.json.encode({"ok": True, "jobType": name}))

    async def listed(self, call: Call) -> Reply:
        """The job types that are known here, and the schemas that were registered."""
        tenant = call.caller.tenant
        found = await all_records(self._desk.engine.store, KIND, tenant)
        schemas = {one.id: Raw((one.data or "null").encode()) for one in found}
        names = {*schemas, *await self._desk.engine.engines.types(tenant)}
        names |= set(self._declared.names if self._declared is not None else ())
        types = [{"jobType": name, "schema": schemas.get(name)} for name in sorted(names)]
        return Reply(200, msgspec.json.encode({"ok": True, "jobTypes": types}))


def misfits_of(schema: Any, payload: Any) -> dict[str, str]:
    """What a JSON Schema finds wrong, by field."""
    return dict(_named(schema, payload))


def _named(schema: Any, payload: Any) -> Iterator[tuple[str, str]]:
    for number, fault in enumerate(faults(schema, payload)):
        if number >= _SHOWN_MAX:
            return
        where, _, why = fault.partition(": ")
        path = where.removeprefix("$").lstrip(".")
        if why.endswith(_MISSING):
            path = ".".join(filter(None, (path, why.removesuffix(_MISSING))))
            why = f"it{_MISSING}"
        yield path, why


def _need(name: str, misfits: dict[str, str]) -> None:
    if not misfits:
        return
    field, why = next(iter(misfits.items()))
    code = MISSING_FIELD if why.endswith(_MISSING) else SCHEMA_INVALID
    where = f"payload.{field}" if field else "payload"
    fields = {f"payload.{one}" if one else "payload": said for one, said in misfits.items()}
    raise Fault(
        code, f"the payload does not fit {name}: {where}: {why}", field=where, fields=fields
    )


def _checked(body: bytes) -> str:
    if len(body) > _SCHEMA_BYTES_MAX:
        raise Fault("TOO_LARGE", f"a schema has at most {_SCHEMA_BYTES_MAX} bytes")
    try:
        schema = msgspec.json.decode(msgspec.json.decode(body, type=_Sent).schema)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Fault(BAD, "the body must be {schema: a JSON Schema}", field="schema") from None
    why = unfit(schema)
    if why is not None or not isinstance(schema, dict | bool):
        raise Fault(
            BAD, f"this schema cannot be checked here: {why or 'no object'}", field="schema"
        )
    return msgspec.json.encode(schema).decode()
