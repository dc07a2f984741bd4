"""Schemas of arguments, by type and version or by name: pushed jobs are held to them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Raw, UnsetType

from detent.engine.asks import Ask
from detent.engine.caching import Remembered
from detent.engine.paging import all_records
from detent.stores.api import Key, Record
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.http.json_schema import BadSchema
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.desk import Desk, read_body
from detent.surfaces.ojs.faults import invalid, missing
from detent.surfaces.ojs.reading import need_text
from detent.surfaces.ojs.wire import told

BY_TYPE: Final = "ojs-schema"
BY_URI: Final = "ojs-schema-uri"
_DIGITS: Final = 9


class _Sent(msgspec.Struct, frozen=True):
    schema: Raw | UnsetType = msgspec.UNSET
    uri: str | None = None
    type: str | None = None
    version: str | int | None = None


class _Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    schema: Raw
    created_at: int
    uri: str | None = None
    type: str | None = None
    version: str | int | None = None


class Registry:
    """The operations on schemas."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: Remembered[tuple[str, Key], _Schema | None] = Remembered(
            self._schema, desk.now
        )

    # --- holding jobs to them -------------------------------------------------------------------

    def has_none(self, tenant: str, type_: str, now: int) -> bool:
        """Whether the type is known to have no schema, without asking anybody."""
        found = self._known.fresh((BY_TYPE, (tenant, type_)), now)
        return found is not None and found[0] is None

    async def need_fit(self, ask: Ask) -> None:
        """Refuse arguments that do not fit the schema of the type, or the one it names."""
        asked = [(BY_TYPE, (ask.tenant, ask.type))]
        if ask.schema is not None:
            asked.append((BY_URI, (ask.tenant, ask.schema)))
        for kind, key in asked:
            found = await self._known.get((kind, key))
            if found is not None:
                await self._need_valid(bytes(found.schema), ask)

    async def _need_valid(self, schema: bytes, ask: Ask) -> None:
        value = ask.payload.encode()
        if _is_of_object(schema):
            args = msgspec.json.decode(value, type=list[Raw])
            value = bytes(args[0]) if args else b"null"
        try:
            found = await self._desk.service.schemas.find_faults(schema, value)
        except BadSchema as error:
            raise _invalid_schema(f"the schema of {ask.type}", error) from None
        if found:
            why = f"args do not fit the schema of {ask.type}: {found[0]}"
            raise Problem(400, "schema_validation", why, field="args")

    async def _schema(self, asked: tuple[str, Key]) -> _Schema | None:
        kind, key = asked
        return await self._newest(key) if kind == BY_TYPE else await self._named(key)

    # --- by type and version --------------------------------------------------------------------

    async def put_version(self, call: Call) -> Reply:
        """A new version for a type; one that is there stays as it is."""
        type_, version = call.param("type"), self._version(call)
        schema = await self._checked(read_body(call, _Sent))
        name = f"{type_}@{version:0{_DIGITS}d}"
        need_text("type", name)
        made = _Schema(schema, self._desk.now(), type=type_, version=version)
        await self._add(BY_TYPE, (call.caller.tenant, name), made)
        self._known.forget()
        return self._desk.reply({"type": type_, "version": version}, 201)

    async def newest(self, call: Call) -> Reply:
        """The newest version for a type."""
        key = (call.caller.tenant, call.param("type"))
        found = await self._newest(key)
        if found is None:
            raise missing("schema for", key[1])
        return self._desk.reply(_shown(found))

    async def versions(self, call: Call) -> Reply:
        """All versions for a type."""
        key = (call.caller.tenant, call.param("type"))
        found = await self._versions(key)
        if not found:
            raise missing("schema for", key[1])
        numbers = [_read(one).version for one in found]
        return self._desk.reply({"type": key[1], "versions": numbers})

    async def version(self, call: Call) -> Reply:
        """One version for a type."""
        return self._desk.reply(_shown(_read(await self._record(call))))

    async def delete_version(self, call: Call) -> Reply:
        """Forget one version."""
        record = await self._record(call)
        gone = Record(BY_TYPE, record.id, record.version + 1, None, tenant=record.tenant)
        await self._desk.engine.put(gone)
        self._known.forget()
        type_, version = call.param("type"), self._version(call)
        return self._desk.reply({"deleted": True, "type": type_, "version": version})

    def _version(self, call: Call) -> int:
        text = call.param("version")
        if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
            raise invalid("version must be a number", field="version")
        return int(text)

    async def _record(self, call: Call) -> Record:
        name = f"{call.param('type')}@{self._version(call):0{_DIGITS}d}"
        record = await self._desk.record(BY_TYPE, (call.caller.tenant, name))
        if record is None:
            raise missing("schema", name)
        return record

    async def _versions(self, key: Key) -> Sequence[Record]:
        tenant, type_ = key
        return await all_records(self._desk.engine.store, BY_TYPE, tenant, f"{type_}@")

    async def _newest(self, key: Key) -> _Schema | None:
        found = await self._versions(key)
        return _read(found[-1]) if found else None

    # --- by name --------------------------------------------------------------------------------

    async def post(self, call: Call) -> Reply:
        """A schema under a name of its own."""
        sent = read_body(call, _Sent)
        uri = need_text("uri", sent.uri)
        schema, now = await self._checked(sent), self._desk.now()
        made = _Schema(schema, now, uri, sent.type, sent.version)
        await self._add(BY_URI, (call.caller.tenant, uri), made)
        self._known.forget()
        return self._desk.reply({"schema": _shown(made)}, 201)

    async def listed(self, call: Call) -> Reply:
        """All schemas that have names."""
        found = await all_records(self._desk.engine.store, BY_URI, call.caller.tenant)
        return self._desk.reply({"schemas": [_shown(_read(one)) for one in found]})

    async def get(self, call: Call) -> Reply:
        """The schema of a name."""
        uri = call.param("uri")
        found = await self._named((call.caller.tenant, uri))
        if found is None:
            raise missing("schema", uri)
        return self._desk.reply({"schema": _shown(found)})

    async def delete(self, call: Call) -> Reply:
        """Forget the schema of a name."""
        uri = call.param("uri")
        key = (call.caller.tenant, uri)
        if await self._named(key) is None:
            raise missing("schema", uri)
        await self._desk.change(BY_URI, key, lambda _: (None, None))
        self._known.forget()
        return self._desk.reply({"deleted": True, "uri": uri})

    async def _named(self, key: Key) -> _Schema | None:
        record = await self._desk.record(BY_URI, key)
        return None if record is None else _read(record)

    async def _checked(self, sent: _Sent) -> Raw:
        if isinstance(sent.schema, UnsetType):
            raise invalid("schema is needed: a JSON Schema", field="schema")
        try:
            await self._desk.service.schemas.need_schema(bytes(sent.schema))
        except BadSchema as error:
            raise _invalid_schema("schema", error) from None
        return sent.schema

    async def _add(self, kind: str, key: Key, made: _Schema) -> None:
        data = msgspec.json.encode(made).decode()
        if not await self._desk.engine.put(Record(kind, key[1], 1, data, tenant=key[0])):
            raise Problem(409, "conflict", f"the schema {key[1]} is there already")


@lru_cache(maxsize=256)
def _is_of_object(schema: bytes) -> bool:
    # A schema of an object is about the first argument: arguments themselves are always an array.
    found = msgspec.json.decode(schema)
    return isinstance(found, dict) and found.get("type") == "object"


def _invalid_schema(what: str, error: BadSchema) -> Problem:
    why = f"{what} cannot be used: {error}"
    hint = "correct the schema at that path, and register it again"
    return Problem(422, "invalid_schema", why, field="schema", path=error.path, hint=hint)


def _read(record: Record) -> _Schema:
    return msgspec.json.decode(record.data or "", type=_Schema)


def _shown(schema: _Schema) -> dict[str, Any]:
    told_of = {
        "uri": schema.uri,
        "type": schema.type,
        "version": schema.version,
        "schema": schema.schema,
        "created_at": told(schema.created_at),
    }
    return {name: value for name, value in told_of.items() if value is not None}
