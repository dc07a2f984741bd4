"""Options that cannot be are refused where they are given; `None` takes one back."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from detent import Backoff, Detent, Limit, Unique
from detent.errors import BadOption


@pytest.fixture
def app() -> Detent:
    """Nothing is stored here: what is refused is refused before."""
    return Detent("memory:")


def send(to: str = "a") -> str:
    """A job."""
    return to


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("queue", 5),
        ("priority", "high"),
        ("priority", True),
        ("delay", "5"),
        ("delay", math.nan),
        ("delay", math.inf),
        ("delay", timedelta.max),
        ("at", "2030-01-01"),
        ("at", 1_700_000_000),
        ("retry", -1),
        ("retry", True),
        ("retry", "3"),
        ("losses", True),
        ("timeout", 0),
        ("timeout", "30s"),
        ("queue_timeout", -1),
        ("expires", "soon"),
        ("unique", 1),
        ("unique", Unique(by=["nobody"])),
        ("key", 5),
        ("limit", 5),
        ("tags", "urgent"),
        ("tags", [1]),
        ("tags", (tag for tag in ["used up when it is looked at"])),
        ("meta", "x"),
        ("tenant", None),
        ("idempotency_key", 5),
    ],
)
def test_a_value_of_another_kind_is_refused_by_its_name_before_a_job_is_made(
    app: Detent, option: str, value: Any
) -> None:
    with pytest.raises(BadOption, match=option) as caught:
        app.job(send).using(**{option: value})
    assert caught.value.fields["option"] == option
    with pytest.raises(BadOption, match=option):
        app.job(name="declared", **{option: value})(send)


@pytest.mark.parametrize(
    ("kind", "fields", "told"),
    [
        (Backoff, {"retries": -1}, "retries"),
        (Backoff, {"first": "x"}, "first"),
        (Backoff, {"most": 0}, "most"),
        (Backoff, {"never": ValueError}, r"\[ValueError\]"),
        (Backoff, {"never": "ValueError"}, r"\[ValueError\]"),
        (Limit, {}, "limits nothing"),
        (Limit, {"concurrency": 0}, "concurrency"),
        (Limit, {"rate": 1.5}, "rate"),
        (Limit, {"rate": 1, "per": 0}, "per"),
        (Limit, {"spacing": -1}, "spacing"),
        (Unique, {"by": "user"}, r"like \['user'\]"),
        (Unique, {"within": 0}, "within"),
        (Unique, {"states": ["done"]}, "completed"),
        (Unique, {"states": ()}, "states"),
        (Unique, {"on_conflict": "raise"}, "ignore"),
    ],
)
def test_what_takes_more_than_a_word_is_refused_where_it_is_written(
    kind: Any, fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(BadOption, match=told):
        kind(**fields)


def test_one_text_is_no_list_of_its_letters(app: Detent) -> None:
    with pytest.raises(BadOption, match="secret"):
        app.job(secret="to")(send)  # noqa: S106 - it is a name
    for option in ("queues", "types", "tenants"):
        with pytest.raises(BadOption, match=option):
            app.working(**dict[str, Any]({option: "mail"}))


@pytest.mark.parametrize(
    ("name", "ours"),
    [("countdown", "delay"), ("eta", "at"), ("max_retries", "retry"), ("time_limit", "timeout")],
)
def test_whoever_comes_from_elsewhere_is_told_our_word(app: Detent, name: str, ours: str) -> None:
    given: dict[str, Any] = {name: 5}
    with pytest.raises(BadOption, match=f"Did you mean {ours}"):
        app.job(send).using(**given)


def test_a_worker_is_told_of_its_own_options(app: Detent) -> None:
    with pytest.raises(BadOption, match="Did you mean queues"):
        app.working(queue="mail")  # type: ignore[call-arg]
    with pytest.raises(BadOption, match="Did you mean slots"):
        app.working(concurrency=5)  # type: ignore[call-arg]
    with pytest.raises(BadOption, match="fair is queues or keys"):
        app.working(fair="x")  # type: ignore[arg-type]


def test_none_takes_back_what_was_said(app: Detent) -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)
    mail = app.job(queue="mail", timeout=5, at=later, tags=["x"], unique=True)(send)
    said: dict[str, Any] = {"queue": None, "tags": None}
    now = mail.using(timeout=None, at=None, unique=None, **said)
    first, second = now.enqueue(), now.enqueue()
    assert first.id != second.id
    assert (first.status().queue, first.status().state) == ("default", "available")
    assert mail.enqueue().status().queue == "mail"
    app.close()


def test_a_delay_that_is_over_is_none(app: Detent) -> None:
    assert app.job(send).using(delay=timedelta(hours=-1)).enqueue().status().state == "available"
    app.close()


@pytest.mark.parametrize("chosen", [{"queue": None}, {"type": send}, {"tag": ["a"]}, {"state": 5}])
def test_jobs_are_selected_by_texts_and_never_all_by_mistake(
    app: Detent, chosen: dict[str, Any]
) -> None:
    with pytest.raises(BadOption, match=next(iter(chosen))):
        app.select(**chosen)


def test_a_wait_is_a_length_of_time(app: Detent) -> None:
    handle = app.job(send).using(delay=5).enqueue()
    with pytest.raises(BadOption, match="length of time"):
        handle.result("5")  # type: ignore[arg-type]
    app.close()
