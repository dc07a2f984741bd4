"""Job types: which there are, and what their payloads must be.

A type is known if the program declares it, if a schema was registered for it, or if an engine has
ever said that it takes it. What does not fit is refused before it is a job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

from detent.engine.paging import all_records
from detent.stores.api import Record
from detent.surfaces.engines.desk import Desk
from detent.surfaces.engines.faults import (
    BAD,
    BAD_SCHEMA,
    MISSING_FIELD,
    SCHEMA_INVALID,
    UNKNOWN_TYPE,
    Fault,
)
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.json_schema import BadSchema, SchemaFault

KIND: Final = "engine-type"
FRESH_US: Final = 1_000_000
_AGAIN_US: Final = 50_000
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

    @property
    def schemas(self) -> Mapping[str, bytes]:
        """The JSON Schemas of those that have one, by name."""
        ...

    def misfits(self, name: str, payload: dict[str, Any]) -> dict[str, str]:
        """What is wrong with the arguments of a function, by field."""
        ...


class _Sent(msgspec.Struct, frozen=True):
    schema: Raw


class Kinds:
    """Knows the types, and holds payloads to them."""

    def __init__(self, desk: Desk, declared: Declared | None) -> None:
        self._desk = desk
        self._declared = declared
        self._schemas: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        self._taken: dict[str, tuple[int, frozenset[str]]] = {}

    async def need_fit(self, tenant: str, name: str, payload: dict[str, Any]) -> None:
        """Refuse a type that nobody knows, and a payload that does not fit."""
        declared = self._declared
        if declared is not None and name in declared.names:
            schema = declared.schemas.get(name)
            if schema is None:
                _need(name, declared.misfits(name, payload))
                return
        else:
            schema = await self._schema(tenant, name)
        if schema is not None:
            _need(name, await self._misfits(name, schema, payload))
        elif name not in await self._types(tenant, name):
            why = "no program declares it, no schema is registered, and no engine takes it"
            raise Fault(UNKNOWN_TYPE, f"there is no job type {name}: {why}", field="jobType")

    async def _misfits(self, name: str, schema: bytes, payload: dict[str, Any]) -> dict[str, str]:
        value = msgspec.json.encode(payload)
        try:
            found = await self._desk.service.schemas.find_faults(schema, value, _SHOWN_MAX)
        except BadSchema as error:
            raise _bad_schema(f"the schema of {name}", error) from None
        return {_field(fault): fault.reason for fault in found}

    async def _schema(self, tenant: str, name: str) -> bytes | None:
        at, found = self._schemas.get((tenant, name), (-FRESH_US, None))
        now = self._desk.now()
        if not 0 <= now - at < FRESH_US:
            [record] = await self._desk.engine.store.record([(KIND, tenant, name)])
            found = None if record is None else (record.data or "null").encode()
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

    async def _checked(self, body: bytes) -> str:
        try:
            schema = bytes(msgspec.json.decode(body, type=_Sent).schema)
        except (msgspec.DecodeError, RecursionError):
            raise Fault(BAD, "the body must be {schema: a JSON Schema}", field="schema") from None
        try:
            await self._desk.service.schemas.need_schema(schema)
        except BadSchema as error:
            raise _bad_schema("this schema", error) from None
        return schema.decode()

    # --- over HTTP ------------------------------------------------------------------------------

    async def put(self, call: Call) -> Reply:
        """Register the JSON Schema of a job type's payload."""
        tenant, name = call.caller.tenant, call.param("jobType")
        if not 1 <= len(name) <= _NAME_MAX:
            raise Fault(BAD, f"a job type has 1 to {_NAME_MAX} characters", field="jobType")
        text = await self._checked(call.body)
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


def _field(fault: SchemaFault) -> str:
    return fault.path.removeprefix("$").removeprefix(".")


def _bad_schema(what: str, error: BadSchema) -> Fault:
    return Fault(BAD_SCHEMA, f"{what} cannot be used: {error}", field="schema", path=error.path)


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
