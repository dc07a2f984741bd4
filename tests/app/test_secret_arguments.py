"""What a job declares secret reaches its function, and nothing and nobody else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec
import pytest

from detent import Context, Detent, Unique
from detent.engine.keyring import new_key
from detent.errors import BadOption, BadSignature, NoSecretKey
from detent.runtime.masking import Mask
from detent.stores.api import Stored
from detent.testing import Rig
from tests.postgres.server import databases

TOKEN = "s3cr3t-t0ken/with+more"  # noqa: S105 - it is looked for


class Card(msgspec.Struct):
    """An argument of which a part is secret."""

    number: str
    month: int = 1


def test_the_function_gets_what_was_passed(app: Detent) -> None:
    got: list[object] = []

    @app.job(secret=("token", "card.number"))
    def pay(token: str, card: Card, note: str = "") -> None:
        got.append((token, card, note))

    pay.enqueue(TOKEN, Card("4111"), note="hello")
    app.drain()
    assert got == [(TOKEN, Card("4111"), "hello")]


def everything(folder: Path) -> bytes:
    """Every byte that the database left on disk, except the key."""
    files = [one for one in folder.iterdir() if not one.name.endswith("-key")]
    return b"".join(one.read_bytes() for one in files)


def test_nothing_of_it_is_in_the_file(tmp_path: Path) -> None:
    with Detent(f"sqlite:///{tmp_path}/detent.db") as app:

        @app.job(secret=("token",), retry=1, unique=True)
        def pay(ctx: Context, token: str, plain: str) -> None:
            ctx.log(f"paying {plain} with {token}")
            ctx.progress(50, f"half of {token}")
            raise ValueError(f"declined: {token!r} at https://pay/?t=s3cr3t-t0ken%2Fwith%2Bmore")

        handle = pay.using(idempotency_key="k").enqueue(TOKEN, "plain-text")
        app.drain()
        status = handle.status()
        assert status.error_message == "declined: '[secret]' at https://pay/?t=[secret]"
        assert [line.text for line in handle.logs()] == ["paying plain-text with [secret]"]
        assert status.message == "half of [secret]"
        assert TOKEN not in repr(pay.bind(TOKEN, "x"))
    assert b"s3cr3t" not in everything(tmp_path)
    assert b"plain-text" in everything(tmp_path)
    assert (tmp_path / "detent.db-key").exists()


def test_a_traceback_shows_the_code_and_not_the_value(tmp_path: Path) -> None:
    with Detent(f"sqlite:///{tmp_path}/detent.db") as app:

        @app.job(secret=("token",), retry=0)
        def pay(token: str) -> None:
            raise RuntimeError("outer") from KeyError(token)

        handle = pay.enqueue(TOKEN)
        app.drain()
        [failure] = app.bridge.run(_stored(app, handle.id)).failures
        assert failure.backtrace is not None
        assert "KeyError: '[secret]'" in failure.backtrace
    assert b"s3cr3t" not in everything(tmp_path)


async def _stored(app: Detent, job: str) -> Stored:
    [stored] = await (await app.engine()).store.get([("", job)])
    assert stored is not None
    return stored


def test_a_long_line_is_masked_before_it_is_cut(app: Detent) -> None:
    @app.job(secret=("token",))
    def pay(ctx: Context, token: str) -> None:
        ctx.log("x" * 16_380 + token)

    handle = pay.enqueue(TOKEN)
    app.drain()
    [line] = handle.logs()
    assert "s3c" not in line.text


def test_with_another_key_the_job_waits_for_who_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, ran = f"sqlite:///{tmp_path}/detent.db", []

    def declared(app: Detent) -> object:
        @app.job(secret=("token",))
        def pay(token: str) -> None:
            ran.append(token)

        return pay

    old, new = new_key(), new_key()
    monkeypatch.setenv("DETENT_SECRET_KEY", old)
    with Detent(url) as app:
        first = declared(app).enqueue(TOKEN)  # type: ignore[attr-defined]
    monkeypatch.setenv("DETENT_SECRET_KEY", new)
    with Detent(url) as app:
        declared(app)
        app.drain()
        status = app.handle(first.id).status()
        assert (status.state, status.failures, ran) == ("retryable", 0, [])


def test_keys_can_be_changed_while_jobs_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, ran = f"sqlite:///{tmp_path}/detent.db", []
    old, new = new_key(), new_key()
    for keys in (old, f"{new},{old}"):
        monkeypatch.setenv("DETENT_SECRET_KEYS", keys)
        with Detent(url) as app:

            @app.job(secret=("token",))
            def pay(token: str) -> None:
                ran.append(token)

            pay.enqueue(TOKEN)
            if keys != old:
                app.drain()
    assert ran == [TOKEN, TOKEN]


def test_a_changed_row_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    with Detent(f"sqlite:///{path}") as app:

        @app.job(secret=("token",))
        def pay(token: str) -> None:
            raise AssertionError(token)

        one, two = pay.enqueue("first-token"), pay.enqueue("second-token")
        with sqlite3.connect(path) as raw:
            _swap_payloads(raw)
        raw.close()
        app.drain()
        for handle in (one, two):
            assert handle.status().error_code == "secret_unreadable"
            assert handle.status().state == "discarded"


def _swap_payloads(raw: sqlite3.Connection) -> None:
    """What somebody could do who may write to the database but has no key."""
    found = dict(raw.execute("SELECT seq, payload FROM detent_bodies").fetchall())
    for (seq, payload), other in zip(found.items(), reversed(found.values()), strict=True):
        assert payload != other
        raw.execute("UPDATE detent_bodies SET payload = ? WHERE seq = ?", (other, seq))


@pytest.mark.slow
def test_a_server_without_a_key_is_given_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DETENT_SECRET_KEY", raising=False)
    monkeypatch.delenv("DETENT_SECRET_KEYS", raising=False)
    url = databases().of(tmp_path)
    with Detent(url) as app:

        @app.job(secret=("token",))
        def pay(token: str) -> None: ...

        with pytest.raises(NoSecretKey, match="DETENT_SECRET_KEY"):
            pay.enqueue(TOKEN)


def test_what_is_stored_in_the_clear_may_not_name_a_secret(app: Detent) -> None:
    @app.job(secret=("token", "card.number"))
    def pay(token: str, card: Card | None = None) -> None: ...

    with pytest.raises(BadOption, match="secret"):
        pay.using(key="{token}").enqueue(TOKEN)
    with pytest.raises(BadOption, match="secret"):
        pay.using(key="{card[number]}").enqueue(TOKEN, Card("4111"))
    with pytest.raises(BadOption, match="secret"):
        pay.using(unique=Unique(by=("token",))).enqueue(TOKEN)
    with pytest.raises(BadOption, match="secret"):
        pay.using(secret=("card",))  # type: ignore[call-arg]


def test_a_secret_must_be_a_parameter_that_is_passed_by_name(app: Detent) -> None:
    def rest(token: str, *more: str) -> None: ...
    def only(token: str, /) -> None: ...
    def plain(token: str) -> None: ...

    for function, secret in ((rest, "token"), (only, "token"), (plain, "tokn"), (plain, "token.")):
        with pytest.raises(BadSignature, match="secret"):
            app.job(secret=(secret,))(function)


def test_a_test_can_ask_for_a_job_with_secrets() -> None:
    app = Detent("memory:")

    @app.job(secret=("token",))
    def pay(token: str) -> None: ...

    with Rig(app) as rig:
        pay.enqueue(TOKEN)
        rig.assert_enqueued(pay.bind(TOKEN))
        with pytest.raises(AssertionError, match="Expected") as caught:
            rig.assert_enqueued(pay.bind("other-token"))
        assert TOKEN not in str(caught.value)
        assert "other-token" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb c", "it was a\nb c"),
        ("back\\slash", "KeyError: 'back\\\\slash'"),
        ('quo"te', '{"t":"quo\\"te"}'),
        ("grün", "gr\\xfcn"),
        (123456, "number 123456"),
        ({"deep": ["value"]}, "a value"),
        ("line one\nline two", "only line two"),
    ],
)
def test_a_value_is_found_however_it_is_written(value: object, text: str) -> None:
    masked = Mask([value])(text)
    assert "[secret]" in masked


def test_short_values_leave_the_log_readable() -> None:
    assert Mask(["7", True, None, ""])("7 of 9 True None") == "7 of 9 True None"
