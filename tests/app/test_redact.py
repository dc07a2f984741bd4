"""`redact=`: whatever a function of the arguments changes is secret, however it changes it."""

from __future__ import annotations

from typing import Any

import pytest

from detent import Context, Detent, Unique
from detent.errors import BadArguments, BadOption, BadSignature
from detent.runtime.hiding import Hidden, Redact

GIVEN = '{"args":[],"kwargs":{"a":1,"b":{"c":"x","d.e":2,"f":[1,{"g":2}]},"h":null}}'
CARD = "4111-1111-1111-1111"


def last_four(inputs: dict[str, Any]) -> dict[str, Any]:
    """As programs do it: in place, and only where there is something."""
    if inputs.get("card"):
        inputs["card"] = f"****{inputs['card'][-4:]}"
    return inputs


def with_(**more: Any) -> Redact:
    return lambda inputs: {**inputs, **more}


def b_with(**more: Any) -> Redact:
    return lambda inputs: {**inputs, "b": {**inputs["b"], **more}}


@pytest.mark.parametrize(
    ("redact", "places"),
    [
        (lambda inputs: inputs, ()),
        (with_(new=1), ()),
        (with_(a=2), ("kwargs.a",)),
        (with_(a=1.0), ("kwargs.a",)),
        (with_(a=True), ("kwargs.a",)),
        (with_(h=""), ("kwargs.h",)),
        (b_with(c="*"), ("kwargs.b.c",)),
        (with_(b=None), ("kwargs.b",)),
        (b_with(f=[1, {"g": 3}]), ("kwargs.b.f",)),
        # A path has dots between its parts, so what is beside this one is hidden with it.
        (b_with(**{"d.e": 3}), ("kwargs.b",)),
        (lambda inputs: {"a": inputs["a"], "b": inputs["b"]}, ("kwargs.h",)),
        (lambda _inputs: {}, ("kwargs.a", "kwargs.b", "kwargs.h")),
    ],
)
def test_what_it_changes_or_leaves_out_is_secret(redact: Redact, places: tuple[str, ...]) -> None:
    assert Hidden(redact=redact).places("x", GIVEN) == places


def test_the_function_gets_all_and_everybody_else_the_rest() -> None:
    got: list[str] = []
    with Detent("memory:") as app:

        @app.job(redact=last_four, secret=("card",), retry=0)
        def pay(ctx: Context, card: str | None = None, amount: int = 1) -> None:
            got.append(str(card))
            ctx.log(f"{amount} from {card}")

        call = pay.bind(CARD, 12)
        assert CARD not in repr(call)
        # The stand-in is made of the secret, so it is not told either.
        assert "****" not in repr(call)
        handle = pay.enqueue(CARD, 12)
        pay.enqueue(None)
        app.drain()
        assert sorted(got) == [CARD, "None"]
        assert [one.text for one in handle.logs()] == ["12 from [secret]"]


def test_what_is_kept_in_the_clear_may_not_name_what_is_changed() -> None:
    with Detent("memory:") as app:

        @app.job(redact=last_four)
        def pay(card: str, amount: int = 1) -> None: ...

        with pytest.raises(BadOption, match="secret"):
            pay.using(unique=Unique(by=("card",))).enqueue(CARD)
        with pytest.raises(BadOption, match="secret"):
            pay.using(key="{card}").enqueue(CARD)
        assert pay.using(unique=Unique(by=("amount",))).enqueue(CARD).id
        with pytest.raises(BadOption, match="scheduled"):
            app.schedules.add("@hourly", pay.bind(""))


def test_one_that_fails_lets_nothing_in_and_quotes_nothing() -> None:
    def broken(inputs: dict[str, Any]) -> dict[str, Any]:
        raise ValueError(inputs["card"])

    def silent(inputs: dict[str, Any]) -> None:
        inputs.clear()

    with Detent("memory:") as app:
        for number, redact in enumerate((broken, silent)):

            @app.job(name=f"pay{number}", redact=redact)  # type: ignore[arg-type]
            def pay(card: str) -> None: ...

            with pytest.raises(BadArguments, match="redact=") as caught:
                pay.enqueue(CARD)
            assert CARD not in str(caught.value)
            assert caught.value.__cause__ is None
        with pytest.raises(BadArguments, match="secret") as caught:
            pay.enqueue(4111)  # type: ignore[arg-type]
        assert "4111" not in str(caught.value)


def test_every_argument_must_have_a_name() -> None:
    def only(card: str, /) -> None: ...
    def many(*cards: str) -> None: ...
    def plain(card: str) -> None: ...
    async def awaited(inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    with Detent("memory:") as app:
        for function in (only, many):
            with pytest.raises(BadSignature, match="redact="):
                app.job(redact=last_four)(function)
        for wrong in (awaited, "card"):
            with pytest.raises(BadSignature, match="redact="):
                app.job(redact=wrong)(plain)  # type: ignore[arg-type]
