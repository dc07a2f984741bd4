"""What a handler takes and gives: its arguments as a payload and back, its result likewise.

A payload is `{"args": [...], "kwargs": {...}}`. Whatever can be named is named, however the caller
passed it, so equal calls have equal payloads and parameters may change their order; `args` has only
what cannot be named: positional-only parameters, and everything before and in `*rest`. A bare
array, as other protocols send it, is read as positional arguments.

Arguments are checked by reading them back as the worker will: whatever gets in can be run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from types import GenericAlias, NoneType
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from detent.errors import BadArguments, BadResult, BadSignature
from detent.runtime.context import Context
from detent.runtime.encoding import BadValue, Reader, encode, is_foreign
from detent.runtime.executors.means import Means
from detent.runtime.hiding import Hidden

_P = inspect.Parameter
_MANY = (_P.VAR_POSITIONAL, _P.VAR_KEYWORD)
_PLAIN = (int, str, bool)
"""Types whose values are read back as they were written, all of them."""


def _is_context(hint: Any) -> bool:
    """A function that is also called without one says `Context | None`."""
    args = get_args(hint)
    return hint is Context or (Context in args and all(one in (Context, NoneType) for one in args))


def _readable(hint: Any) -> Any:
    """The same, where JSON has only one thing for it: anything, and a list."""
    if hint is object:
        return Any
    if get_origin(hint) is Iterable:
        return GenericAlias(list, get_args(hint))
    return hint


def _annotated(function: Any) -> Any:
    """Where its types are: a partial has none of its own, nor has an object that can be called."""
    while isinstance(function, partial):
        function = function.func
    has_own = inspect.isroutine(function) or inspect.isclass(function)
    return function if has_own else type(function).__call__


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    args: list[msgspec.Raw] = []
    kwargs: dict[str, msgspec.Raw] = {}


class _Named(msgspec.Struct, forbid_unknown_fields=True):
    kwargs: dict[str, msgspec.Raw]
    args: tuple[()] = ()


_NAMED = msgspec.json.Decoder(_Named)
_PAYLOADS = msgspec.json.Decoder(_Payload | list[msgspec.Raw])


class Signature:
    """The signature of one handler; `name` is its job's, for errors.

    `hidden` is what it says about arguments whose values are stored locked, `means` about where it
    runs.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        hidden: Hidden | None = None,
        means: Means | None = None,
    ) -> None:
        self.name = name
        self.function = function
        self.hidden = hidden or Hidden()
        self.means = means or Means()
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            why = "a generator does not run when it is called; return a list instead of yielding"
            raise BadSignature(f"{name} cannot be a job: {why}", job=name)
        try:
            inspect.signature(function)
        except ValueError as error:
            raise BadSignature(f"{name} cannot be a job: {error}", job=name) from None
        for path in self.hidden.paths:
            self._need_named(path)
        self.hidden.need_sound(name, function)

    def _need_named(self, path: str) -> None:
        """A secret must be stored under its name, or it could be missed and stored in the clear."""
        parameters = inspect.signature(self.function).parameters
        has_rest = any(one.kind is _P.VAR_POSITIONAL for one in parameters.values())
        named = [_P.KEYWORD_ONLY] if has_rest else [_P.KEYWORD_ONLY, _P.POSITIONAL_OR_KEYWORD]
        first = parameters.get(path.split(".", maxsplit=1)[0])
        if first is None or first.kind not in named or "" in path.split("."):
            why = f"{path!r} is declared secret, and no parameter is always passed by that name"
            raise BadSignature(f"{self.name} cannot be a job: {why}", job=self.name, secret=path)

    def secret(self, payload: str) -> tuple[str, ...]:
        """The places in a payload that are locked."""
        return self.hidden.places(self.name, payload)

    @cached_property
    def wants_context(self) -> bool:
        """Whether it asks for the `Context` of its run, as its first parameter."""
        asking = [name for name, hint in self._hints.items() if _is_context(hint)]
        if not asking:
            return False
        first = next(iter(inspect.signature(self.function).parameters))
        if asking != [first]:
            why = f"its Context must be the first parameter, not {asking[-1]!r}"
            raise BadSignature(f"{self.name} cannot be a job: {why}", job=self.name)
        return True

    def takes(self, name: str) -> bool:
        """Whether callers can give an argument of that name."""
        parameters = inspect.signature(self.function).parameters
        takes_any = any(one.kind is _P.VAR_KEYWORD for one in parameters.values())
        return takes_any or (name in parameters and parameters[name].kind not in _MANY)

    def required(self) -> list[str]:
        """The parameters without a default; types that are declared later need not be there yet."""
        try:
            has_context = self.wants_context
        except BadSignature:
            # Then nobody knows yet whether the first parameter is its Context.
            has_context = True
        parameters = list(inspect.signature(self.function).parameters.values())[has_context:]
        return [one.name for one in parameters if one.default is _P.empty and one.kind not in _MANY]

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """The call as exact JSON; `BadArguments` names the value that does not fit."""
        return self._usual(args, kwargs) or self._exact(args, kwargs)

    def _usual(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
        """The same at a glance, if all arguments have names and nothing is odd about them."""
        readers, needed = self._named
        if not readers or len(args) > self._positions:
            return None
        given = dict(zip(readers, args, strict=False))
        if kwargs:
            if not given.keys().isdisjoint(kwargs):
                return None
            given |= kwargs
            given = {name: given[name] for name in readers if name in given}
        if len(given) != len(args) + len(kwargs) or not needed <= given.keys():
            return None
        plain = self._plain
        for name, value in given.items():
            if type(value) is not plain[name]:
                given[name] = self._written(name, name, value)
        try:
            return msgspec.json.encode(_Payload([], given)).decode()
        except (ValueError, OverflowError, UnicodeError):
            # What is wrong with them is said there.
            return None

    @cached_property
    def _positions(self) -> int:
        """How many arguments can be given without their names, where all can be named."""
        kinds = [one.kind for one in self._signature.parameters.values()]
        return kinds.count(_P.POSITIONAL_OR_KEYWORD)

    @cached_property
    def _plain(self) -> dict[str, Any]:
        """Of which type a value is already what it would be read back as, by parameter."""
        hints = {name: self._hints.get(name) for name in self._readers}
        return {name: hint if hint in _PLAIN else None for name, hint in hints.items()}

    def _exact(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        bound = self._bound(args, kwargs)
        self._each(bound.arguments, self._written)
        return msgspec.json.encode(self._normal(bound)).decode()

    def arguments(self, payload: str) -> inspect.BoundArguments:
        """The call that a payload stands for, without the context."""
        try:
            found = _PAYLOADS.decode(payload)
        except RecursionError:
            raise self._misfit("it is nested too deeply", "") from None
        except msgspec.DecodeError as error:
            raise self._misfit(str(error), "") from None
        if isinstance(found, list):
            found = _Payload(found)
        bound = self._bound(found.args, found.kwargs)
        self._each(bound.arguments, self._read)
        return bound

    def misfits(self, payload: str) -> dict[str, str]:
        """Everything that is wrong with arguments that have names, by name; all of it at once."""
        found = _NAMED.decode(payload).kwargs
        parameters = self._signature.parameters
        takes_any = any(one.kind is _P.VAR_KEYWORD for one in parameters.values())
        told = {
            name: "it is missing"
            for name, one in parameters.items()
            if one.default is _P.empty and one.kind not in _MANY and name not in found
        }
        for name, value in found.items():
            if name in parameters and parameters[name].kind not in _MANY:
                told |= self._misread(name, value)
            elif not takes_any:
                told[name] = "there is no such argument"
        return told

    def _misread(self, name: str, value: msgspec.Raw) -> dict[str, str]:
        try:
            self._read(name, name, value)
        except BadArguments as error:
            return {str(error.fields["path"]): str(error.fields["why"])}
        return {}

    def call(self, payload: str) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The same as arguments to call it with. Where all are named, there is nothing to bind."""
        readers, needed = self._named
        if readers:
            try:
                found = _NAMED.decode(payload)
                if needed <= found.kwargs.keys() <= readers.keys():
                    named = found.kwargs.items()
                    return (), {name: readers[name].read(value) for name, value in named}
            except (msgspec.DecodeError, RecursionError, BadValue):
                # What is wrong with them is said below.
                pass
        bound = self.arguments(payload)
        return bound.args, bound.kwargs

    @cached_property
    def _named(self) -> tuple[dict[str, Reader], set[str]]:
        """How to read parameters, and which must be there; none, if not all can be named."""
        parameters = self._signature.parameters.values()
        if any(one.kind in (_P.POSITIONAL_ONLY, *_MANY) for one in parameters):
            return {}, set()
        return self._readers, {one.name for one in parameters if one.default is _P.empty}

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """What arguments are if they are left out, as JSON has them; none that may be secret."""
        readers, needed = self._named
        if self.hidden.declared:
            return {}
        given = {name: self._signature.parameters[name].default for name in readers.keys() - needed}
        found: dict[str, Any] = {}
        for name, value in given.items():
            # What is no value of its type, like a mark of our own, stands for nothing.
            with suppress(BadArguments):
                is_none = value is None
                text = b"null" if is_none else self._written(name, name, value)
                found[name] = msgspec.json.decode(text)
        return found

    def result(self, text: str | None) -> Any:
        """What the handler returned, as the type it promised."""
        try:
            return self._returned.read(text or "null")
        except BadValue as bad:
            why = f"The result of {self.name} is not what the function promises: {bad}"
            raise BadResult(why, job=self.name, path=bad.path, why=bad.why) from None

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(_annotated(self.function), include_extras=True)
        except NameError as error:
            why = f"{error}; its types must be importable where it is defined"
            raise BadSignature(f"{self.name} cannot be a job: {why}", job=self.name) from error

    @cached_property
    def _signature(self) -> inspect.Signature:
        whole = inspect.signature(self.function)
        parameters = list(whole.parameters.values())
        return whole.replace(parameters=parameters[1:] if self.wants_context else parameters)

    @cached_property
    def _readers(self) -> dict[str, Reader]:
        self._need_returnable()
        return {name: self._reader(name) for name in self._signature.parameters}

    @cached_property
    def _returned(self) -> Reader:
        return self._reader("return")

    def _need_returnable(self) -> None:
        """Refuse a result that can only fail, and would do so after the work is done."""
        hint = self._hints.get("return")
        if isinstance(hint, type) and is_foreign(hint):
            why = f"it returns a {hint.__qualname__}, which cannot be written as JSON"
            fix = "return what is of use to others, or nothing: -> None"
            raise BadSignature(f"{self.name} cannot be a job: {why}; {fix}", job=self.name)

    def _reader(self, name: str) -> Reader:
        try:
            return Reader(_readable(self._hints.get(name, Any)))
        except TypeError as error:
            where = f"{self.name} cannot be a job: {name!r} is of a type that JSON has no room for"
            raise BadSignature(f"{where}: {error}", job=self.name, parameter=name) from error

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
        try:
            return self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._misfit(str(error), "") from None

    def _each(self, arguments: dict[str, Any], change: Callable[[str, str, Any], Any]) -> None:
        """Put something else in the place of every value; `change` hears its parameter and path."""
        for name, value in arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is _P.VAR_POSITIONAL:
                told = enumerate(value)
                arguments[name] = tuple(change(name, f"{name}[{at}]", one) for at, one in told)
            elif kind is _P.VAR_KEYWORD:
                arguments[name] = {key: change(name, key, one) for key, one in value.items()}
            else:
                arguments[name] = change(name, name, value)

    def _written(self, name: str, path: str, value: Any) -> msgspec.Raw:
        if isinstance(value, bytes | bytearray) and name not in self._hints:
            why = f"JSON has no bytes, and they would arrive as a text: say {name}: bytes"
            raise self._misfit(why, path)
        try:
            # Written as it is read: 2 for a float is 2.0, so equal calls have equal payloads.
            return msgspec.Raw(encode(self._readers[name].read(encode(value))))
        except BadValue as bad:
            raise self._misfit(self._told(name, bad.why), path + bad.path) from None

    def _told(self, name: str, why: str) -> str:
        """What is wrong with an argument; of a secret one the words may quote the value."""
        named = any(path.split(".")[0] == name for path in self.hidden.paths)
        is_secret = named or self.hidden.redact is not None
        return "it does not fit its type (it is secret, so no more is told)" if is_secret else why

    def _read(self, name: str, path: str, value: msgspec.Raw) -> Any:
        try:
            return self._readers[name].read(value)
        except BadValue as bad:
            raise self._misfit(self._told(name, bad.why), path + bad.path) from None

    def _normal(self, bound: inspect.BoundArguments) -> _Payload:
        kinds = {name: one.kind for name, one in self._signature.parameters.items()}
        if _P.VAR_POSITIONAL in kinds.values():
            return _Payload(list(bound.args), dict(bound.kwargs))
        unnamed = [v for name, v in bound.arguments.items() if kinds[name] is _P.POSITIONAL_ONLY]
        named = {
            name: value
            for name, value in bound.arguments.items()
            if kinds[name] not in (_P.POSITIONAL_ONLY, *_MANY)
        }
        for name, value in bound.arguments.items():
            if kinds[name] is _P.VAR_KEYWORD:
                named |= value
        return _Payload(unnamed, named)

    def _misfit(self, why: str, path: str) -> BadArguments:
        where = f"argument {path}: {why}" if path else why
        return BadArguments(f"{self.name}: {where}", job=self.name, path=path, why=why)
