"""Arguments become exact JSON and come back as the types of the signature, or say where not."""

from __future__ import annotations

import datetime as dt
import sys
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from detent import Context
from detent.errors import BadArguments, BadResult, BadSignature
from detent.runtime.hiding import Hidden
from detent.runtime.signature import Signature


@dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    points: list[Point]


class Mail(pydantic.BaseModel):
    to: str
    at: dt.datetime | None = None


class Strict(pydantic.BaseModel, strict=True):
    at: dt.datetime


Short = Annotated[str, pydantic.StringConstraints(pattern=r"^[a-z]*\S$", max_length=9)]
Clean = Annotated[str, pydantic.StringConstraints(strip_whitespace=True)]


def need_one(line: Line) -> Line:
    if len(line.points) > 1:
        raise ValueError("one point")
    return line


def need_date(mail: Mail) -> Mail:
    if mail.at is None:
        raise ValueError("no date")
    return mail


def signed(function: Any) -> Signature:
    return Signature(function.__name__, function)


def plain(a: int, b: str = "x", *, c: float = 1.0) -> str: ...  # type: ignore[empty-body]
def rest(a: int, *more: int, **named: str) -> None: ...
def apart(a: int, /, b: int, **named: int) -> None: ...
def asking(ctx: Context, line: Line) -> Line: ...  # type: ignore[empty-body]
def modelled(mail: Mail, also: Mail | None = None) -> Mail: ...  # type: ignore[empty-body]
def nested(mails: list[Mail]) -> None: ...
def strictly(one: Strict) -> None: ...
def typed(when: dt.datetime, who: UUID, raw: bytes, many: dict[int, set[str]]) -> None: ...
def shuffled(a: set[str], b: dict[str, int]) -> None: ...
def narrow(
    count: Annotated[int, pydantic.Field(gt=5)],
    names: list[Short] = [],  # noqa: B006 - nobody changes it
    line: Annotated[Line, pydantic.AfterValidator(need_one)] | None = None,
    mail: Annotated[Mail, pydantic.AfterValidator(need_date)] | None = None,
) -> None: ...
def loose(a, b=2):  # type: ignore[no-untyped-def]
    ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "payload"),
    [
        (plain, (1,), {}, '{"args":[],"kwargs":{"a":1}}'),
        (plain, (1, "y"), {"c": 2}, '{"args":[],"kwargs":{"a":1,"b":"y","c":2.0}}'),
        (plain, (), {"c": 2, "b": "y", "a": 1}, '{"args":[],"kwargs":{"a":1,"b":"y","c":2.0}}'),
        (rest, (1, 2, 3), {"n": "m"}, '{"args":[1,2,3],"kwargs":{"n":"m"}}'),
        (apart, (1, 2), {"a": 3}, '{"args":[1],"kwargs":{"b":2,"a":3}}'),
        (
            asking,
            (Line([Point(1)]),),
            {},
            '{"args":[],"kwargs":{"line":{"points":[{"x":1,"y":0}]}}}',
        ),
        (modelled, (Mail(to="a"),), {}, '{"args":[],"kwargs":{"mail":{"at":null,"to":"a"}}}'),
        (
            shuffled,
            ({"c", "a", "b"}, {"b": 1, "a": 2}),
            {},
            '{"args":[],"kwargs":{"a":["a","b","c"],"b":{"a":2,"b":1}}}',
        ),
        (loose, ([1, {"a": None}],), {}, '{"args":[],"kwargs":{"a":[1,{"a":null}]}}'),
    ],
)
def test_equal_calls_have_equal_payloads_and_come_back(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], payload: str
) -> None:
    signature = signed(function)
    assert signature.payload(args, kwargs) == payload
    bound = signature.arguments(payload)
    again = signature.payload(bound.args, bound.kwargs)
    assert again == payload


def test_values_come_back_as_the_types_of_the_signature() -> None:
    when, who = dt.datetime(2030, 1, 1, tzinfo=dt.UTC), UUID(int=7)
    signature = signed(typed)
    bound = signature.arguments(signature.payload((when, who, b"\0", {1: {"a"}}), {}))
    assert bound.args == (when, who, b"\0", {1: {"a"}})
    at = Strict(at=when)
    signature = signed(strictly)
    assert signature.arguments(signature.payload((at,), {})).args == (at,)


def test_a_bare_array_is_read_as_positional_arguments() -> None:
    bound = signed(plain).arguments('[1,"y"]')
    assert bound.arguments == {"a": 1, "b": "y"}


@pytest.mark.parametrize(
    ("function", "args", "path"),
    [
        (plain, ("1",), "a"),
        (plain, (1, 2), "b"),
        (rest, (1, 2, "3"), "more[1]"),
        (asking, (Line([Point(1), Point("2")]),), "line.points[1].x"),  # type: ignore[arg-type]
        (modelled, ({"to": 3},), "mail.to"),
        (modelled, (Mail(to="a"), {"nothing": 1}), "also.to"),
        (nested, ([{"to": "a"}, {"to": 3}],), "mails[1].to"),
        (narrow, (5,), "count"),
        (narrow, (6, ["a", "b "]), "names[1]"),
        (narrow, (6, [], Line([Point(1), Point(2)])), "line"),
        (narrow, (6, [], None, {"to": "a"}), "mail"),
        (loose, (object(),), "a"),
        (loose, ("\ud800",), "a"),
        (plain, (1, "x", 3), ""),
        (plain, (), ""),
    ],
)
def test_the_error_names_the_path_of_the_bad_value(
    function: Any, args: tuple[Any, ...], path: str
) -> None:
    with pytest.raises(BadArguments) as caught:
        signed(function).payload(args, {})
    assert caught.value.code == "bad_arguments"
    assert caught.value.fields["path"] == path
    assert path in str(caught.value)


def cleaned(name: Clean) -> None: ...
def unheard(count: Annotated[int, pydantic.Field(gt="five")]) -> None: ...
def secretly(pin: Annotated[str, pydantic.AfterValidator(int)]) -> None: ...


def test_what_pydantic_makes_of_a_value_is_what_is_stored() -> None:
    payload = signed(cleaned).payload(("  Ada ",), {})
    assert payload == '{"args":[],"kwargs":{"name":"Ada"}}'
    assert signed(cleaned).call('{"kwargs":{"name":" Bob "}}') == ((), {"name": "Bob"})


def test_what_pydantic_cannot_make_sense_of_is_no_signature() -> None:
    with pytest.raises(BadSignature, match="'gt' must be"):
        signed(unheard).payload((6,), {})


def test_what_pydantic_says_of_a_secret_is_not_told() -> None:
    signature = Signature("secretly", secretly, Hidden(("pin",)))
    with pytest.raises(BadArguments, match="it is secret") as caught:
        signature.payload(("hunter2",), {})
    assert "hunter2" not in str(caught.value)


def test_without_pydantic_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    assert signed(narrow).payload((5,), {}) == '{"args":[],"kwargs":{"count":5}}'


def test_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(BadArguments):
        signed(loose).payload((loop,), {})


class Opaque:
    """Neither msgspec nor pydantic knows what it is made of."""


def closed(a: Opaque) -> None: ...


def test_a_type_that_json_has_no_room_for_is_refused() -> None:
    with pytest.raises(BadArguments, match="cannot be read from JSON"):
        signed(closed).payload(({},), {})
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(BadArguments, match="nested too deeply"):
        signed(loose).arguments(f"[{deep}]")


@pytest.mark.parametrize("payload", ["{", '"a"', '{"args":[],"more":1}', '{"kwargs":{"a":"1"}}'])
def test_a_payload_that_fits_no_call_is_refused(payload: str) -> None:
    with pytest.raises(BadArguments):
        signed(plain).arguments(payload)


def test_a_result_that_breaks_its_promise_says_so() -> None:
    assert signed(plain).result('"a"') == "a"
    assert signed(rest).result(None) is None
    with pytest.raises(BadResult) as caught:
        signed(plain).result("[1]")
    assert caught.value.fields["job"] == "plain"


def late(ctx: int, other: Context) -> None: ...
def made(a: Unknown) -> None: ...  # type: ignore[name-defined] # noqa: F821
def odd(a: int | list[int] | set[int]) -> None: ...
def yielding() -> Any:
    yield 1


@pytest.mark.parametrize("function", [late, made, odd])
def test_a_function_that_cannot_be_a_job_says_why(function: Any) -> None:
    with pytest.raises(BadSignature) as caught:
        signed(function).payload((1,), {})
    assert caught.value.fields["job"] == function.__name__


def test_a_generator_is_no_job() -> None:
    with pytest.raises(BadSignature, match="yielding"):
        signed(yielding)
