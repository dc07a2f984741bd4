"""Stores which arguments of a type are secret, for programs that do not know the type.

A program that declares secrets says so in one small record per type, before it does anything else.
Whoever makes jobs of a type without knowing its function (a command line, another protocol) goes by
that record. It only ever grows: a path that was secret once is locked until somebody removes the
record, so that an older program which starts later cannot open it up again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from detent.engine.asks import Ask
from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.identity import Identity
from detent.engine.paging import all_records
from detent.engine.secrets import REDACTED, redacted_at, values_at
from detent.errors import BadArguments, StoreBusy
from detent.stores.api import Committed, Own, Record, Store, Unit

KIND: Final = "type"
KNOWN_US: Final = 2_000_000
"""How long an answer is good for, in microseconds; nobody asks the store for every job."""
_TYPES_MAX: Final = 10_000
_NOTHING: Final[tuple[object, ...]] = (
    [],
    {},
    None,
    {"args": []},
    {"kwargs": {}},
    {"args": [], "kwargs": {}},
)


class _Type(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is written down about a type."""

    secret: tuple[str, ...] = ()


class Declared:
    """The secrets of types: told by programs, asked for by everybody else."""

    def __init__(self, store: Store, coalescer: Coalescer, identity: Identity) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    async def tell(self, types: Mapping[str, Sequence[str]]) -> None:
        """Write down which places in the payloads of these types are secret, beside what is."""
        for _ in range(TRIES_MAX):
            puts = await self._puts({name: paths for name, paths in types.items() if paths})
            if not puts:
                return
            units = [Unit(self._identity.id(), puts=(put,)) for put in puts]
            outcomes = await self._coalescer.commit(units)
            if all(isinstance(one, Committed | Own) for one in outcomes):
                return
        raise StoreBusy("What is secret was changed by others while it was being written down")

    async def of(self, types: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """The secret places of each of these types, as of a moment ago."""
        names, now = list(dict.fromkeys(types)), self._store.now()
        old = [name for name in names if self._known.get(name, (0, ()))[0] <= now]
        if len(self._known) + len(old) > _TYPES_MAX:
            self._known.clear()
            old = names
        for name, record in zip(old, await self._records(old), strict=True):
            self._known[name] = (now + KNOWN_US, _read(record).secret)
        return {name: self._known[name][1] for name in names}

    def has_none(self, name: str, now: int) -> bool:
        """Whether the type is known to have no secrets, without asking anybody."""
        until, paths = self._known.get(name, (0, ()))
        return not paths and now < until

    async def applied(self, asks: Sequence[Ask]) -> Sequence[Ask]:
        """The same requests; those of callers who do not know what is secret are told."""
        unsure = [ask.type for ask in asks if ask.secret is None]
        if not unsure:
            return asks
        paths = await self.of(unsure)
        return [_applied(ask, paths.get(ask.type, ())) for ask in asks]

    async def all(self) -> dict[str, tuple[str, ...]]:
        """The secret places of every type that has some."""
        found = await all_records(self._store, KIND)
        return {one.id: paths for one in found if (paths := _read(one).secret)}

    async def is_known(self, name: str) -> bool:
        """Whether a program of this type has been here: then what is written down is all."""
        if (await self.of([name]))[name]:
            return True
        rows = [*await self._store.workers(), *await self._store.workers(gone=True)]
        return any(row.who is not None and name in (row.who.types or ()) for row in rows)

    async def _puts(self, types: Mapping[str, Sequence[str]]) -> list[Record]:
        puts: list[Record] = []
        for (name, paths), record in zip(
            types.items(), await self._records(list(types)), strict=True
        ):
            before = _read(record).secret
            after = tuple(sorted({*before, *paths}))
            if after != before:
                version = 1 if record is None else record.version + 1
                data = msgspec.json.encode(_Type(after)).decode()
                puts.append(Record(KIND, name, version, data))
        return puts

    async def _records(self, names: Sequence[str]) -> Sequence[Record | None]:
        return await self._store.record([(KIND, "", name) for name in names]) if names else []


def _read(record: Record | None) -> _Type:
    if record is None or record.data is None:
        return _Type()
    return msgspec.json.decode(record.data, type=_Type)


def _applied(ask: Ask, paths: tuple[str, ...]) -> Ask:
    if ask.secret is not None:
        return ask
    if paths and not _is_named(ask.payload):
        why = 'it has secret arguments, which must be given by name: {"kwargs": {...}}'
        raise BadArguments(f"{ask.type}: {why}", job=ask.type, path="", why=why)
    return msgspec.structs.replace(ask, secret=paths)


def bared(payload: str, paths: Sequence[str]) -> str | None:
    """The arguments without their secrets; `None` if there are none in it.

    Without names nobody can tell which of them are secret.
    """
    if not paths or not has_arguments(payload):
        return None
    if not _is_named(payload):
        return msgspec.json.encode([REDACTED]).decode()
    return redacted_at(payload, paths) if values_at(payload, paths) else None


def has_arguments(payload: str) -> bool:
    """Whether it says anything that could be secret."""
    return msgspec.json.decode(payload) not in _NOTHING


def _is_named(payload: str) -> bool:
    """Whether every argument has its name: what has none cannot be told from a secret."""
    try:
        found = msgspec.json.decode(payload, type=dict[str, msgspec.Raw])
        return (
            found.keys() <= {"args", "kwargs"}
            and msgspec.json.decode(found.get("args", msgspec.Raw(b"[]"))) == []
        )
    except msgspec.DecodeError:
        return False
