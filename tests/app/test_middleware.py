"""What is registered around enqueues and runs stands around them, in order, in either colour."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from detent import Call, Context, Detent, JobFailed
from detent.errors import BadSignature

said: contextvars.ContextVar[str] = contextvars.ContextVar("said", default="")


def around(name: str, colour: str, log: list[str]) -> Any:
    """A piece of middleware that says when it begins and how it ends."""

    def plain(_: Any) -> Generator[None, None, None]:
        log.append(f"{name} begins")
        try:
            yield
        except Exception as error:
            log.append(f"{name} saw {type(error).__name__}")
            raise
        log.append(f"{name} ends")

    async def asynchronous(thing: Any) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        inner = plain(thing)
        next(inner)
        try:
            yield
        except Exception as error:
            inner.throw(error)
        next(inner, None)

    return plain if colour == "sync" else asynchronous


ONION = ["a begins", "b begins", "b ends", "a ends"]


@pytest.mark.parametrize("colours", ["sync sync", "async async", "sync async", "async sync"])
@pytest.mark.parametrize("handler", ["sync", "async"])
def test_runs_are_surrounded_in_order(app: Detent, colours: str, handler: str) -> None:
    log: list[str] = []
    first, second = colours.split()
    app.around_run(around("a", first, log))
    app.around_run(around("b", second, log))

    def plain() -> int:
        log.append("run")
        return 1

    async def asynchronous() -> int:
        return plain()

    handle = app.job(name="it")(plain if handler == "sync" else asynchronous).enqueue()
    app.drain()
    assert handle.result() == 1
    # Around a plain function the asynchronous ones are outside: they cannot be in its thread.
    swapped = handler == "sync" and colours == "sync async"
    before, after = ("b", "a") if swapped else ("a", "b")
    expected = [f"{before} begins", f"{after} begins", "run", f"{after} ends", f"{before} ends"]
    assert log == expected


@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("handler", ["sync", "async"])
def test_an_error_of_the_handler_passes_through(app: Detent, colour: str, handler: str) -> None:
    log: list[str] = []
    app.around_run(around("a", colour, log))

    def plain() -> None:
        raise ValueError("no")

    async def asynchronous() -> None:
        plain()

    handle = app.job(name="it", retry=0)(plain if handler == "sync" else asynchronous).enqueue()
    app.drain()
    with pytest.raises(JobFailed, match="ValueError: no"):
        handle.result()
    assert log == ["a begins", "a saw ValueError"]


@pytest.mark.parametrize("handler", ["sync", "async"])
def test_what_is_raised_before_the_run_is_a_failure_of_the_job(app: Detent, handler: str) -> None:
    ran: list[int] = []

    @app.around_run
    def refuse(_: Context) -> Iterator[None]:
        if not ran:
            raise PermissionError("not today")
        yield

    def plain() -> None:
        ran.append(1)

    async def asynchronous() -> None:
        plain()

    handle = app.job(name="it", retry=0)(plain if handler == "sync" else asynchronous).enqueue()
    app.drain()
    assert handle.status().error_message == "not today"
    assert ran == []


def test_who_swallows_an_error_completes_the_job(app: Detent) -> None:
    @app.around_run
    def swallow(_: Context) -> Iterator[None]:
        with contextlib.suppress(ValueError):
            yield

    def plain() -> None:
        raise ValueError

    async def asynchronous() -> None:
        calls.append(1)
        raise ValueError

    calls: list[int] = []
    handles = [app.job(name=f.__name__)(f).enqueue() for f in (plain, asynchronous)]
    app.drain()
    assert [one.result() for one in handles] == [None, None]
    assert calls == [1]


def test_what_is_plain_is_in_the_thread_of_the_handler_and_shares_its_context(app: Detent) -> None:
    seen: list[object] = []

    @app.around_run
    def mark(ctx: Context) -> Iterator[None]:
        seen.append(threading.get_ident())
        token = said.set(ctx.job_id)
        yield
        said.reset(token)

    @app.job
    def work() -> None:
        seen.extend((threading.get_ident(), said.get()))

    handle = work.enqueue()
    app.drain()
    assert seen[0] == seen[1] != threading.get_ident()
    assert seen[2] == handle.id


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_enqueues_are_surrounded_where_the_caller_is(app: Detent, colour: str) -> None:
    log: list[str] = []
    app.around_enqueue(around("a", colour, log))
    app.around_enqueue(around("b", "sync", log))

    @app.job
    def work() -> None: ...

    work.enqueue()
    assert log == ONION
    log.clear()
    asyncio.run(_aenqueue(work))
    assert log == ONION
    log.clear()
    app.enqueue_many([work.bind(), work.bind()])
    assert log == ["a begins", "b begins"] * 2 + ["b ends", "a ends"] * 2
    log.clear()
    asyncio.run(_aenqueue_many(work))
    assert log == ONION


async def _aenqueue(work: Any) -> None:
    await work.aenqueue()


async def _aenqueue_many(work: Any) -> None:
    await work.aenqueue_many([work.bind()])


def test_a_call_can_be_given_other_options_without_changing_the_job(app: Detent) -> None:
    @app.around_enqueue
    def traced(call: Call[Any]) -> Iterator[None]:
        call.options["meta"] = {**call.options.get("meta", {}), "trace": said.get()}
        yield

    @app.job(meta={"a": 1})
    def work() -> None: ...

    said.set("t-1")
    bound = work.bind()
    handle = app.enqueue_many([bound])[0]
    stored = app.bridge.run(_stored(app, handle.id))
    assert stored.body.meta == '{"a":1,"trace":"t-1"}'
    assert bound.options == work.options == {"meta": {"a": 1}}


async def _stored(app: Detent, job: str) -> Any:
    [stored] = await (await app.engine()).store.get([("", job)])
    return stored


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_who_refuses_before_the_yield_is_heard_and_nothing_is_stored(
    app: Detent, colour: str
) -> None:
    log: list[str] = []
    app.around_enqueue(around("a", colour, log))

    @app.around_enqueue
    def refuse(_: Call[Any]) -> Iterator[None]:
        if log:
            raise PermissionError
        yield

    @app.job
    def work() -> None: ...

    with pytest.raises(PermissionError):
        work.enqueue()
    with pytest.raises(PermissionError):
        asyncio.run(_aenqueue(work))
    assert log == ["a begins", "a saw PermissionError"] * 2
    assert app.drain() == []


def test_what_is_no_generator_is_refused(app: Detent) -> None:
    with pytest.raises(BadSignature, match="yields once"):
        app.around_run(lambda _: None)  # type: ignore[type-var]
    with pytest.raises(BadSignature, match="yields once"):
        app.around_enqueue(lambda _: None)  # type: ignore[type-var]
