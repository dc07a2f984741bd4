"""JSON Schemas of arguments: what may be registered, and what is wrong with a value.

Schemas and values come from users, and jsonschema-rs holds the interpreter lock while it checks, so
that a thread would not keep the event loop free. `SchemaChecker` therefore makes small checks on
the loop and sends the others to a process of its own, in which the kernel bounds processor time
and memory. That process runs this very file as a script, which is why nothing of Detent is
imported here.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

MAX_SCHEMA_BYTES: Final = 65_536
MAX_SCHEMA_DEPTH: Final = 64
# Processor time of one check in the process, and the memory of the process.
MAX_CHECK_CPU_S: Final = 2
MAX_CHECK_MEMORY_BYTES: Final = 1 << 30
# A compiled pattern is at most this large. `^.{1,255}$` needs 600 kB.
_MAX_PATTERN_BYTES: Final = 1_000_000
_MAX_MESSAGE_CHARS: Final = 300
_TOO_COSTLY: Final = (
    f"a check takes more than {MAX_CHECK_CPU_S} s of processor time, or too much memory. Nest $ref "
    "and unevaluatedProperties less, and repeat less in patterns"
)
# All errors of a value are listed only if it is small: each costs 15 us, and 2 kB of memory.
_MAX_LISTED_VALUE_BYTES: Final = 2_048
# What is done on the loop, as bytes of the schema times bytes of the value: 5 ns each to find out
# whether the value fits, 500 ns each to say what is wrong. Either is a few ms.
_MAX_LOOP_COST: Final = 1_000_000
_MAX_LOOP_FAULT_COST: Final = 20_000
# The time that these take is no product of sizes: with references and with unevaluated properties
# it doubles at each level of nesting, with patterns it grows with their repetitions.
_UNBOUNDED: Final = (
    b'"$ref"',
    b'"$dynamicRef"',
    b'"$recursiveRef"',
    b'"pattern"',
    b'"patternProperties"',
    b'"unevaluatedItems"',
    b'"unevaluatedProperties"',
)


class BadSchema(Exception):
    """A schema cannot be used: where in it (`$.properties.a.type`), and why."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class SchemaFault(NamedTuple):
    """One thing that is wrong with a value, and where: `$.items[0].name`."""

    path: str
    reason: str
    is_missing: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def declare_schema(schema: Any) -> bytes:
    """Return the schema of a program as JSON, or raise `BadSchema` if it is wrong.

    Without jsonschema-rs only its size is looked at: the server does the rest.
    """
    try:
        text = json.dumps(schema, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema("$", f"it cannot be written as JSON: {error}") from None
    need_bounds(text)
    with suppress(ModuleNotFoundError):
        compile_schema(text)
    return text


def need_bounds(text: bytes) -> None:
    """Raise `BadSchema` for a text that is too large, too deep, or no schema at all."""
    if len(text) > MAX_SCHEMA_BYTES:
        why = f"it has {len(text)} bytes and may have {MAX_SCHEMA_BYTES}: it is read at every push"
        raise BadSchema("$", f"{why}. Describe only what the handler relies on")
    try:
        schema = json.loads(text)
        is_deep = _is_deep(schema)
    except ValueError as error:
        raise BadSchema("$", f"it is not JSON: {error}") from None
    except RecursionError:
        is_deep = True
    if is_deep:
        why = f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels: each costs time at every push"
        raise BadSchema("$", f"{why}. Name inner schemas in $defs")
    if not isinstance(schema, dict | bool):
        raise BadSchema("$", "a JSON Schema is an object, or true or false")


def compile_schema(text: bytes) -> Validator:
    """Compile a schema as of its `$schema`, or as of 2020-12; raise `BadSchema` if it is wrong.

    If there is no `$schema` and an `items` is an array, the schema is read as of 2019-09, the
    newest version in which that describes a tuple. Nothing is ever fetched, and patterns are
    matched in linear time.
    """
    # A program that only enqueues need not have the package.
    import jsonschema_rs  # noqa: PLC0415

    schema = json.loads(text)
    # Values are not shown: they may be secret.
    options: Any = {
        "offline": True,
        "mask": "the value",
        "pattern_options": jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN_BYTES),
    }
    try:
        try:
            return jsonschema_rs.validator_for(schema, **options)
        except jsonschema_rs.ValidationError as error:
            if "$schema" in schema or not _is_tuple_items(error):
                raise
            return jsonschema_rs.Draft201909Validator(schema, **options)
    except jsonschema_rs.ValidationError as error:
        reason = _cut(error.message)
        if reason.endswith('is not a "regex"'):
            reason += ", or one with look-around, back-references or too much repetition"
        elif "etriev" in reason or "Unknown meta-schema" in reason:
            reason += ". Nothing is fetched: put it into $defs and refer to it as #/$defs/..."
        raise BadSchema(_path(error.instance_path), reason) from None
    except ValueError as error:
        raise BadSchema("$", _cut(str(error))) from None


_compiled = lru_cache(maxsize=256)(compile_schema)


def fits(schema: bytes, value: bytes) -> bool:
    """Whether a value fits a schema; both are JSON."""
    try:
        return _compiled(schema).is_valid(json.loads(value))
    except (ValueError, RecursionError):
        return False


def find_faults(schema: bytes, value: bytes, count: int) -> list[SchemaFault]:
    """Return up to `count` things that are wrong with a value; both are JSON."""
    if fits(schema, value):
        return []
    validator = _compiled(schema)
    try:
        if count > 1:
            errors = validator.iter_errors(json.loads(value))
            return [_fault(error) for error in islice(errors, count)]
        validator.validate(json.loads(value))
    except (ValueError, RecursionError) as error:
        return [_fault(error)]
    return []


def _fault(error: ValidationError | Exception) -> SchemaFault:
    path = list(getattr(error, "instance_path", ()))
    missing = getattr(getattr(error, "kind", None), "property", None)
    if missing is not None:
        return SchemaFault(_path([*path, missing]), "it is missing", is_missing=True)
    return SchemaFault(_path(path), _cut(getattr(error, "message", str(error))))


def _is_tuple_items(error: ValidationError) -> bool:
    is_items = error.instance_path[-1:] == ["items"] and error.kind.name == "type"
    return is_items and isinstance(error.instance, list)


def _path(parts: Iterable[str | int]) -> str:
    steps = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return _cut("$" + "".join(steps))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_MESSAGE_CHARS else f"{text[:_MAX_MESSAGE_CHARS]}..."


def _is_deep(schema: Any) -> bool:
    level = [schema]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict | list):
                inner += part.values() if isinstance(part, dict) else part
        level = inner
    return bool(level)


class SchemaChecker:
    """Checks schemas and values for one server without holding up its event loop."""

    def __init__(self) -> None:
        # One thread: it talks to the process, one check after the other.
        self._thread = ThreadPoolExecutor(1, "detent-schemas")
        self._process: subprocess.Popen[bytes] | None = None
        self._loop_cost = 0

    async def need_schema(self, schema: bytes) -> None:
        """Raise `BadSchema` unless values can be checked against this schema."""
        need_bounds(schema)
        if _cost(schema, b"") > _MAX_LOOP_COST:
            await self._ask(schema, b"null", 1)
        else:
            _compiled(schema)

    async def find_faults(self, schema: bytes, value: bytes, count: int = 1) -> list[SchemaFault]:
        """Return up to `count` things that are wrong with a value; only one if it is large.

        Both are JSON. Raises `BadSchema` if the check takes too much time or memory.
        """
        if len(value) > _MAX_LISTED_VALUE_BYTES:
            count = 1
        cost = _cost(schema, value)
        if cost > _MAX_LOOP_COST:
            return await self._ask(schema, value, count)
        # A batch makes many checks: others get their turn between them.
        self._loop_cost += int(cost)
        if self._loop_cost > _MAX_LOOP_COST:
            self._loop_cost = 0
            await asyncio.sleep(0)
        if cost > _MAX_LOOP_FAULT_COST:
            return [] if fits(schema, value) else await self._ask(schema, value, count)
        return find_faults(schema, value, count)

    def close(self) -> None:
        """End the process, and the check that it may be at."""
        if self._process is not None:
            self._process.kill()
        self._thread.shutdown(cancel_futures=True)
        self._end_process()

    async def _ask(self, schema: bytes, value: bytes, count: int) -> list[SchemaFault]:
        # JSON has line ends only between its tokens.
        lines = (line.replace(b"\n", b" ") + b"\n" for line in (b"%d" % count, schema, value))
        request = b"".join(lines)
        loop = asyncio.get_running_loop()
        bad, faults = await loop.run_in_executor(self._thread, self._exchange, request)
        if bad is not None:
            raise BadSchema(*bad)
        return [SchemaFault(*fault) for fault in faults]

    def _exchange(self, request: bytes) -> Any:
        """Return what the process answers: a wrong schema, or faults."""
        while True:
            process = self._process
            is_new = process is None or process.poll() is not None
            if process is None or is_new:
                self._end_process()
                process = self._process = _start_process()
            assert process.stdin is not None  # noqa: S101 (both are pipes)
            assert process.stdout is not None  # noqa: S101
            try:
                process.stdin.write(request)
                process.stdin.flush()
                reply = process.stdout.readline()
            except BrokenPipeError:
                reply = b""
            if reply.endswith(b"\n"):
                return json.loads(reply)
            self._end_process()
            # What earlier checks have left there may be why an old one has ended.
            if is_new:
                return ("$", _TOO_COSTLY), []

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _cost(schema: bytes, value: bytes) -> float:
    # A schema is compiled as well: that is like a small value.
    return _weight(schema) * max(len(value), 64)


@lru_cache(maxsize=256)
def _weight(schema: bytes) -> float:
    # Written anew, it has no escapes that hide a keyword.
    plain = json.dumps(json.loads(schema), separators=(",", ":")).encode()
    return float("inf") if any(word in plain for word in _UNBOUNDED) else len(plain)


def _start_process() -> subprocess.Popen[bytes]:
    import jsonschema_rs  # noqa: PLC0415

    packages = str(Path(jsonschema_rs.__file__).parent.parent)
    return subprocess.Popen(  # noqa: S603 (our own file, by our own interpreter)
        [sys.executable, "-I", "-S", __file__, packages],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
        process_group=0,
    )


def _serve(packages: str) -> None:
    """Answer checks from standard input, three lines each, until it ends."""
    sys.path.append(packages)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, MAX_CHECK_MEMORY_BYTES)
    lines = sys.stdin.buffer
    while count := lines.readline():
        schema, value = lines.readline(), lines.readline()
        # SIGXCPU ends the process when the time is up.
        _limit(resource.RLIMIT_CPU, int(time.process_time()) + MAX_CHECK_CPU_S)
        bad: Sequence[str] | None = None
        faults: list[SchemaFault] = []
        try:
            faults = find_faults(schema, value, int(count))
        except BadSchema as error:
            bad = error.path, error.reason
        sys.stdout.write(json.dumps([bad, faults]) + "\n")
        sys.stdout.flush()


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    soft = most if hard == resource.RLIM_INFINITY else min(most, hard)
    # macOS does not bound memory.
    with suppress(OSError, ValueError):
        resource.setrlimit(what, (soft, hard))


if __name__ == "__main__":
    _serve(sys.argv[1])
