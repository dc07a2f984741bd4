"""A disk that forgets: what a traced process had written and not synced is lost at any moment.

The process is the real one, on a real file; strace writes down its writes, its syncs and what it
acknowledged on standard output, in their order. From that the files can be rebuilt as they would be
found after the power had failed at any point of it.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeAlias

CALLS = "pwrite64,fdatasync,fsync,ftruncate,write"
_SECTOR = 512
_CALL = re.compile(r"(\d+) (\w+)\((\d+)<([^>]*)>(?:, )?(.*)\) += (-?\d+)", re.DOTALL)
_BYTES = re.compile(r'^"((?:\\x[0-9a-f]{2})*)"(?:, (\d+), (\d+))?')


_Write: TypeAlias = tuple[int, bytes | None]
"""Bytes at an offset; without bytes, a file that ends there."""


class Call(NamedTuple):
    """One system call on one file."""

    name: str
    path: str
    rest: str


class Disk:
    """Files as they are on the disk, and the writes that are only in memory so far."""

    def __init__(self) -> None:
        self._durable: defaultdict[str, bytearray] = defaultdict(bytearray)
        self._unsynced: defaultdict[str, list[_Write]] = defaultdict(list)

    def see(self, call: Call) -> dict[str, Any] | None:
        """Follow one call; what was acknowledged by it, if it was that."""
        match call.name:
            case "pwrite64":
                data, offset = _written(call.rest)
                self._unsynced[call.path].append((offset, data))
            case "ftruncate":
                self._unsynced[call.path].append((int(call.rest), None))
            case "fdatasync" | "fsync":
                _apply(self._durable[call.path], self._unsynced.pop(call.path, []))
            case "write" if call.rest.startswith('"\\x7b'):
                said: dict[str, Any] = json.loads(_written(call.rest)[0])
                return said
        return None

    def fail(self, path: Path, folder: Path, chance: Random | None = None) -> Path:
        """The database as it is found after a power failure now, in another folder.

        Without `chance` everything that was not synced is lost. With it, all of it, the first part
        or any part has reached the disk, in any order of the device, and writes may be torn between
        two sectors, at either end.
        """
        for suffix in ("", "-wal"):
            content = bytearray(self._durable[f"{path}{suffix}"])
            if chance is not None:
                _apply(content, _some(self._unsynced[f"{path}{suffix}"], chance))
            file = folder / f"{path.name}{suffix}"
            file.touch(0o600)
            file.write_bytes(content)
        return folder / path.name


def calls(trace: Iterable[str]) -> Iterator[Call]:
    """The calls of a trace in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in trace:
        process = line.split(" ", 1)[0]
        if line.rstrip().endswith("<unfinished ...>"):
            begun[process] = line.rpartition(" <unfinished ...>")[0]
            continue
        if " resumed>" in line:
            line = begun.pop(process) + line.partition(" resumed>")[2]  # noqa: PLW2901
        found = _CALL.match(re.sub(r"^(\d+) +", r"\1 ", line))
        if found and int(found[6]) >= 0:
            yield Call(found[2], _text(found[4]), found[5])


def _text(escaped: str) -> str:
    return re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), escaped)


def _written(rest: str) -> tuple[bytes, int]:
    found = _BYTES.match(rest)
    assert found is not None, rest[:80]
    return bytes.fromhex(found[1].replace("\\x", "")), int(found[3] or 0)


def _apply(content: bytearray, writes: Iterable[_Write]) -> None:
    for offset, data in writes:
        if data is None:
            del content[offset:]
            continue
        content.extend(bytes(max(0, offset - len(content))))
        content[offset : offset + len(data)] = data


def _some(writes: list[_Write], chance: Random) -> list[_Write]:
    """What of these has reached the disk: a prefix, or any part, each of it whole or torn."""
    match chance.choice(("prefix", "any", "torn")):
        case "prefix":
            return writes[: chance.randint(0, len(writes))]
        case "any":
            return [one for one in writes if chance.random() < 0.5]
        case _:
            kept = [one for one in writes if chance.random() < 0.8]
            return [_torn(*one, chance) if chance.random() < 0.4 else one for one in kept]


def _torn(offset: int, data: bytes | None, chance: Random) -> _Write:
    """A write of which some sectors at one end are missing."""
    if data is None or len(data) <= _SECTOR:
        return offset, data
    cut = _SECTOR * chance.randrange(1, (len(data) - 1) // _SECTOR + 1)
    return (offset, data[:cut]) if chance.random() < 0.5 else (offset + cut, data[cut:])
