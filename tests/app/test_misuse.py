"""What people write on their first day: it works, or is refused in words that help."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Any
from uuid import UUID

import pytest

from detent import Context, Detent, Snooze, Unique, batch, chain, dag, group, stages
from detent.errors import (
    BadArguments,
    BadOption,
    BadResult,
    BadSignature,
    JobFailed,
    NotPortable,
    ResultTimeout,
)
from detent.runtime.worker.settings import Settings
from detent.stores.api import Fair

PATIENCE_S = 30.0


def add(one: int, two: int = 2) -> int:
    """A plain function."""
    return 10 * one + two


async def add_later(one: int, two: int = 2) -> int:
    """The same, awaited."""
    return 10 * one + two


class Adder:
    """An object that can be called."""

    def __call__(self, one: int) -> int:
        return one + 1

    def method(self, one: int) -> int:
        """Has somebody it is called on."""
        return one


class Marked(str):
    """A text as template engines make them: it stays what it is when it is asked for its text."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class Whole(int):
    """A number of a class of its own."""


class Moment(datetime):
    """A moment of a class of its own."""


def told(app: Detent, function: Callable[..., Any], *args: Any) -> Any:
    """What a job of that function returns."""
    handle = app.job(name="it")(function).enqueue(*args)
    app.drain()
    return handle.result(0)


# --- functions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [partial(add, two=3), partial(add_later, two=3)])
def test_a_partial_is_a_job_under_a_name(app: Detent, function: Callable[..., Any]) -> None:
    with pytest.raises(BadSignature, match="name="):
        app.job(function)
    assert told(app, function, 1) == 13
    with pytest.raises(BadArguments, match="Expected `int`"):
        app.jobs["it"].enqueue("x")


def test_an_object_that_can_be_called_is_a_job_too(app: Detent) -> None:
    assert told(app, Adder(), 1) == 2
    with pytest.raises(BadArguments, match="Expected `int`"):
        app.jobs["it"].enqueue("x")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("send", r"name='send'"),
        (5, "no function"),
        (dict, "no signature"),
        (Adder, "is a class"),
        (classmethod(add), "make it a staticmethod"),  # type: ignore[arg-type]
        (lambda: 1, "give its jobs one with name="),
    ],
)
def test_what_cannot_be_a_job_is_refused(app: Detent, function: Any, words: str) -> None:
    with pytest.raises(BadSignature, match=words):
        app.job(function)


def test_words_of_other_systems_are_answered_with_ours(app: Detent) -> None:
    job = app.job(add)
    for owner, word, ours in (
        (job, "delay", r"here it is job\.enqueue\(\.\.\.\)"),
        (job, "apply_async", r"job\.using"),
        (app, "task", "@app.job"),
        (app, "enqueue", "@app.job, and job.enqueue"),
        (app, "nothing_like_that", "no attribute 'nothing_like_that'"),
    ):
        with pytest.raises(AttributeError, match=ours):
            getattr(owner, word)
        assert not hasattr(owner, word)


def test_an_id_may_be_a_uuid_and_nothing_else_but_a_text(app: Detent) -> None:
    handle = app.job(add).enqueue(1)
    assert app.handle(UUID(handle.id)) == handle
    for wrong in (handle, 5, None):
        with pytest.raises(BadOption, match=r"id is a text, as handle\.id has it"):
            app.handle(wrong)  # type: ignore[arg-type]


def test_options_of_others_beside_the_arguments_are_shown_their_place_too(app: Detent) -> None:
    with pytest.raises(BadArguments, match=r"add\.using\(delay=\.\.\.\)\.enqueue"):
        app.job(add).enqueue(1, countdown=5)  # type: ignore[call-arg]


def test_bytes_that_would_arrive_as_a_text_are_refused(app: Detent) -> None:
    def kept(data: bytes) -> int:
        return data[0]

    def loose(data):  # type: ignore[no-untyped-def]
        return data

    assert told(app, kept, b"\xff") == 255
    with pytest.raises(BadArguments, match="say data: bytes"):
        app.job(loose).enqueue(b"\xff")


def test_a_job_is_no_function_of_another(app: Detent) -> None:
    job = app.job(add)
    with pytest.raises(BadSignature, match="a job already"):
        app.job(name="again")(job)


def test_attributes_of_a_function_are_not_those_of_its_job(app: Detent) -> None:
    def mail() -> None: ...

    setattr(mail, "options", {"queue": "elsewhere"})  # noqa: B010 - types know of no such thing
    assert app.job(mail).enqueue().status().queue == "default"


def test_arguments_may_be_called_anything(app: Detent) -> None:
    def odd(self: int, args: int, calls: int) -> int:
        return self + args + calls

    job = app.job(odd)
    handle = job.enqueue(self=1, args=2, calls=3)
    assert job(self=1, args=2, calls=3) == 6
    app.drain()
    assert handle.result(0) == 6


def test_a_function_that_is_also_called_alone_may_do_without_its_context(app: Detent) -> None:
    def mail(ctx: Context | None = None, number: int = 1) -> int:
        return number if ctx is None else 100 + number

    assert told(app, mail, 5) == 105
    assert app.jobs["it"](None, 5) == 5


def test_object_is_anything(app: Detent) -> None:
    def echo(value: object) -> object:
        return value

    assert told(app, echo, [1, None]) == [1, None]


def test_a_list_may_be_called_iterable(app: Detent) -> None:
    def count(values: Iterable[int], by: Callable[[], int] | None = None) -> Iterable[int]:
        assert by is None
        return [one + 1 for one in values]

    assert told(app, count, [1, 2]) == [2, 3]
    with pytest.raises(BadArguments, match=r"values\[0\]"):
        app.jobs["it"].enqueue(["x"])


def test_a_result_that_could_only_fail_is_refused_before_the_work_is_done(app: Detent) -> None:
    def make() -> Adder:
        return Adder()

    with pytest.raises(BadSignature, match="returns a Adder"):
        app.job(make).enqueue()


def test_a_value_of_a_class_that_is_asked_for_is_made_again(app: Detent) -> None:
    def echo(text: Marked, number: Whole) -> Marked:
        assert (type(text), type(number)) == (Marked, Whole)
        return text

    assert type(told(app, echo, Marked("<b>"), Whole(3))) is Marked


def test_a_value_of_a_class_of_its_own_is_what_it_is(app: Detent) -> None:
    def echo(text: str, number: int, at: datetime) -> list[Any]:
        return [Marked(text), Whole(number), Moment.fromtimestamp(at.timestamp(), UTC)]

    at = Moment(2030, 1, 1, tzinfo=UTC)
    assert told(app, echo, Marked("<b>"), Whole(3), at) == ["<b>", 3, "2030-01-01T00:00:00Z"]


# --- references ----------------------------------------------------------------------------------


def test_a_handle_is_kept_by_its_id(app: Detent) -> None:
    """Caches and sessions pickle what they are given, and a handle without its app is nothing."""
    job = app.job(add)
    made: list[Any] = [
        job.enqueue(1),
        job.using(tenant="t").enqueue(1),
        app.start(chain(job.bind(1))),
    ]
    asked = [r"app\.handle\(id\)$", r"app\.handle\(id, tenant\)$", r"app\.workflow\(id\)$"]
    for one, way in zip(made, asked, strict=True):
        with pytest.raises(NotPortable, match=way) as caught:
            one.__reduce_ex__(5)  # which is what pickle calls
        assert caught.value.fields["id"] == one.id
        assert copy.deepcopy([one]) == [copy.copy(one)] == [one]
    assert made[2] == app.workflow(made[2].id) != app.handle(made[2].id)
    assert len({made[2], app.workflow(made[2].id)}) == 1


# --- hints ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["queue", "delay", "conn"])
def test_options_beside_the_arguments_are_shown_their_place(app: Detent, option: str) -> None:
    given: dict[str, Any] = {option: 5}
    with pytest.raises(BadArguments, match=rf"add\.using\({option}=\.\.\.\)\.enqueue"):
        app.job(add).enqueue(1, **given)


def test_a_context_without_its_type_is_no_context(app: Detent) -> None:
    def mail(ctx, to):  # type: ignore[no-untyped-def] # noqa: ARG001
        return to

    with pytest.raises(BadArguments, match="annotate it: ctx: Context"):
        app.job(mail).enqueue("ada")


def test_a_method_has_nobody_to_be_called_on(app: Detent) -> None:
    with pytest.raises(BadArguments, match=r"written as JSON.*has nobody to be called on"):
        app.job(name="on")(Adder.method).enqueue(Adder(), 1)
    with pytest.raises(BadArguments, match="a job is a function"):
        app.job(Adder.method).enqueue(1)  # type: ignore[call-arg, arg-type]


def test_outcomes_are_raised_and_coroutines_awaited(app: Detent) -> None:
    @wraps(add_later)
    def forgetful(one: int) -> Any:
        return add_later(one)

    with pytest.raises(JobFailed, match="coroutine that nobody awaited"):
        told(app, forgetful, 1)
    handle = app.job(name="snoozing", retry=0)(lambda: Snooze(5)).enqueue()
    app.drain()
    with pytest.raises(JobFailed, match=r"raise Snooze\(\.\.\.\)"):
        handle.result(0)


def test_a_context_takes_what_it_can_and_says_what_it_cannot(app: Detent) -> None:
    def mail(ctx: Context) -> list[str]:
        ctx.log(ValueError("odd"))
        ctx.progress(50, 5)  # type: ignore[arg-type]
        ctx.save("text")
        with pytest.raises(BadOption, match="Progress is a number from 0 to 100, not 'half'"):
            ctx.progress("half")  # type: ignore[arg-type]
        with pytest.raises(BadArguments) as refused:
            ctx.enqueue(add)  # type: ignore[arg-type]
        with pytest.raises(BadResult) as unread:
            ctx.saved(int)
        return [str(refused.value), str(unread.value)]

    handle = app.job(mail).enqueue()
    app.drain()
    assert [line.text for line in handle.logs()] == ["odd"]
    assert handle.status().message == "5"
    first, second = handle.result(0)
    assert "job.bind(...)" in first
    assert "checkpoint" in second


# --- calls, workflows, schedules ------------------------------------------------------------------


def test_only_calls_are_put_together(app: Detent) -> None:
    job = app.job(add)
    calls: Any = [job.bind(1), job.bind(2)]
    with pytest.raises(BadArguments, match=r"group\(\*calls\)"):
        group(calls)
    with pytest.raises(BadArguments, match=r"add\.bind"):
        chain(job)  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="no part of another"):
        chain(group(*calls), job.bind(3))  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="enqueued already"):
        batch([job.enqueue(1)], on_success=job.bind(1))  # type: ignore[list-item]
    for many in (job.enqueue_many, app.enqueue_many):
        with pytest.raises(BadArguments, match="put it in a list"):
            many(job.bind(1))  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="no workflow"):
        app.start(job.bind(1))  # type: ignore[arg-type]
    with pytest.raises(BadArguments, match="put it in a list"):
        app.start(stages({"a": []})).add("a", job.bind(1))  # type: ignore[arg-type]


def test_one_name_stands_for_itself(app: Detent) -> None:
    job = app.job(add)
    flow = dag({"a": job.bind(1), "b": job.bind(2), "ab": job.bind(3)}, after={"ab": "a"})
    assert app.start(flow).status().step("ab").after == ("a",)
    gated = stages({"a": job.bind(1), "go": job.bind(2)}, gate="go")
    assert app.start(gated).status().step("go").needs_approval


def test_a_step_that_is_not_there_is_no_empty_one(app: Detent) -> None:
    handle = app.start(chain(app.job(add).bind(1)))
    for ask in (handle.results, handle.status().step):
        with pytest.raises(BadOption, match="there are 1"):
            ask("2")


def test_schedules_are_of_jobs(app: Detent) -> None:
    with pytest.raises(BadSignature, match=r"@app\.job below it"):
        app.schedule("@daily")(add)  # type: ignore[type-var]
    with pytest.raises(BadArguments, match="bind"):
        app.schedules.add("@daily", app.job(add))  # type: ignore[arg-type]
    with pytest.raises(BadOption, match="@every 5m"):
        app.schedule(300)(app.jobs["add"])  # type: ignore[arg-type]


def test_a_listener_without_parentheses_would_never_be_told(app: Detent) -> None:
    with pytest.raises(BadOption, match="completed"):
        app.on(print)  # type: ignore[arg-type]


# --- what is the same -----------------------------------------------------------------------------


def test_handles_on_one_job_are_equal(app: Detent) -> None:
    job = app.job(add)
    one, two = job.enqueue(1), job.enqueue(1)
    assert {one, app.handle(one.id), *app.select(type="add")} == {one, two}
    assert one != Detent("memory:").handle(one.id)
    assert one != one.id


def test_what_is_left_out_is_what_it_would_be(app: Detent) -> None:
    job = app.job(unique=Unique(by=["two"]), key="{two}")(add)
    first = job.enqueue(1)
    assert job.enqueue(9, 2) == first
    assert job.enqueue(1, 3) != first
    assert first == next(iter(app.select(key="2")))


# --- waiting --------------------------------------------------------------------------------------


def test_whoever_waits_is_told_what_for(
    app: Detent, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = app.job(add).enqueue(1)
    with pytest.raises(ResultTimeout, match="No worker is alive"):
        handle.result(0)
    assert not caplog.records
    monkeypatch.setattr("detent.app.handle._TELL_S", 0.0)
    with pytest.raises(ResultTimeout):
        handle.result(0.2)
    [told] = caplog.records
    assert "No worker is alive" in told.getMessage()


def test_an_if_asks_whether_there_are_any(app: Detent) -> None:
    app.job(queue="mail")(add).enqueue(1)
    assert app.select(queue="mail")
    assert not app.select(queue="post")
    assert repr(app.select(queue="mail")) == "<Selection tenant='', queue='mail'>"


def test_methods_are_known_by_the_names_that_people_use(app: Detent) -> None:
    handle = app.job(add).enqueue(1)
    with pytest.raises(TypeError, match=r"Handle\.rerun\(\)"):
        handle.rerun()  # type: ignore[call-arg]
    assert (handle.rerun.__name__, handle.arerun.__name__) == ("rerun", "arerun")
    assert handle.alogs.__qualname__ == "Handle.alogs"


# --- queues ---------------------------------------------------------------------------------------


def test_a_worker_serves_the_queues_that_jobs_are_declared_on(app: Detent) -> None:
    mail = app.job(queue="mail")(add_later)

    async def work(**options: Any) -> Any:
        handle = await mail.aenqueue(1)
        async with app.working(slots=2, **options):
            try:
                return await handle.aresult(0.5 if options else PATIENCE_S)
            except ResultTimeout as error:
                return str(error)

    assert asyncio.run(work()) == 12
    assert "none takes type add_later from queue mail" in asyncio.run(work(queues=["default"]))


def test_queues_that_nobody_named_are_served_in_turn() -> None:
    several = Settings().serving(["mail", "default", "mail"])
    assert (several.queues, several.fair) == (("default", "mail"), Fair.QUEUES)
    assert Settings().serving([]).fair is None
    assert Settings(fair=Fair.KEYS).serving(["mail"]).fair is Fair.KEYS
    said = Settings(queues=("a", "b"))
    assert said.serving(["mail"]) is said
