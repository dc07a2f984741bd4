"""What a type checker knows about jobs; exactly the lines that end in `# wrong` are errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from detent import (
    Backoff,
    Call,
    Context,
    Detent,
    Effects,
    Ending,
    Explanation,
    Found,
    Handle,
    LogLine,
    ScheduleStatus,
    Status,
    Workflow,
    WorkflowHandle,
    WorkflowStatus,
    batch,
    chain,
    dag,
    group,
    stages,
)
from detent.lifecycle.event import Event
from detent.supervisor import (
    Backoff as RestartBackoff,
)
from detent.supervisor import (
    Container,
    Function,
    Probe,
    Process,
    Snapshot,
    Spec,
    Supervisor,
    WorkerContext,
)

app = Detent(queue="mail")


@app.job
def greet(name: str, times: int = 1) -> str:
    return name * times


@app.job(queue="slow", retry=Backoff(retries=3), tags=["net"], redact=dict)
async def fetch(url: str, *, tries: int = 1) -> bytes:
    return url.encode() * tries


@app.job(name="with.context", executor="process", memory=100_000_000, grace=2)
def work(ctx: Context, number: int) -> float:
    ctx.progress(50)
    assert_type(ctx.saved(int), int | None)
    ctx.save([number])
    return number / 2


@app.job
async def awork(ctx: Context, number: int) -> list[int]:
    await ctx.asave([number])
    return [number]


@app.schedule("@daily", tz="UTC")
@app.job
def nothing() -> None: ...


@app.job
def follow(ctx: Context) -> int:
    assert_type(ctx.results(), list[Any])
    assert_type(ctx.endings("1"), list[Ending])
    ctx.enqueue(greet.bind("ada"), fetch.bind("u"))
    ctx.enqueue(greet)  # wrong
    return 1


# Enqueue takes what the function takes, without the context, and knows what it gives.
assert_type(greet.enqueue("ada"), Handle[str])
assert_type(greet.enqueue("ada", times=2).result(timeout=3), str)
assert_type(fetch.enqueue("u", tries=2).result(), bytes)
assert_type(work.enqueue(1).result(), float)
assert_type(awork.enqueue(number=1).result(), list[int])
assert_type(nothing.enqueue().result(), None)

# Called directly they are what they were (`main` awaits the others).
assert_type(greet("ada"), str)

# Options are typed, and change nothing else.
assert_type(greet.using(delay=3, queue="q").enqueue("ada"), Handle[str])
greet.using(trace={"traceparent": "00-..."})
greet.using(trace=3)  # wrong
assert_type(greet.bind("ada"), Call[str])
assert_type(greet.enqueue_many([greet.bind("ada")]), list[Handle[str]])
assert_type(app.enqueue_many([greet.bind("ada"), work.bind(1)]), list[Handle[Any]])

handle = greet.enqueue("ada")
wider: Handle[object] = handle
assert_type(handle.status(), Status)
assert_type(handle.cancel("why"), Status)
assert_type(handle.why(), Explanation)
assert_type(handle.rerun("why", actor="ada"), Handle[str])
assert_type(handle.move("slow", "why"), Status)
assert_type(app.pause("why", queue="mail"), bool)
assert_type(app.select(queue="mail").cancel("why", dry_run=True), Effects)
assert_type(app.select(state="discarded").count(), int)
assert_type([one.seen.state for one in app.select()], list[str])
assert_type(app.select().first(), Found | None)
handle.rerun()  # wrong
app.select(quue="mail")  # wrong
app.select(queue="mail").cancel("why", dry=True)  # wrong
assert_type(handle.history(), list[Event])
assert_type(handle.logs(follow=True), Iterator[LogLine])


# Workflows are made of calls; a group knows what its jobs return.
assert_type(group(greet.bind("a"), greet.bind("b")), Workflow[str])
assert_type(app.start(group(greet.bind("a"))), WorkflowHandle[str])
assert_type(app.start(group(greet.bind("a"))).result(timeout=1), list[str])
shapes: list[Workflow[Any]] = [
    chain(greet.bind("a"), [fetch.bind("u"), work.bind(1)], follow.bind()),
    batch([greet.bind("a"), work.bind(1)], on_success=follow.bind(), on_failure=nothing.bind()),
    stages({"build": [greet.bind("a")], "ship": work.bind(1)}, gate=["ship"]),
    dag({"a": greet.bind("a"), "b": follow.bind()}, after={"b": ["a"]}),
]
flow = app.start(shapes[0], id="w", name="n", meta={"k": 1})
assert_type(flow.approve("ship", "why"), WorkflowStatus)
assert_type(flow.progress(), int)

# Connections and schedules change nothing about the arguments.
assert_type(greet.using(conn=object()).enqueue("ada"), Handle[str])
assert_type(app.schedules.list(), list[ScheduleStatus])
app.schedules.add("@daily", greet.bind("ada"), name="n", overlap="skip")


async def main(ctx: Context) -> None:
    assert_type(await fetch("u"), bytes)
    assert_type(await awork(ctx, 1), list[int])
    assert_type(await awork.aenqueue(1), Handle[list[int]])
    assert_type(await handle.aresult(), str)
    assert_type(await handle.astatus(), Status)
    assert_type(handle.alogs(), AsyncIterator[LogLine])
    assert_type(await greet.aenqueue_many([greet.bind("a")]), list[Handle[str]])
    assert_type(await greet.using(conn=object()).aenqueue("a"), Handle[str])
    assert_type(await (await app.astart(group(work.bind(1)))).aresult(), list[float])
    await awork.aenqueue("1")  # wrong


greet.enqueue(3)  # wrong
greet.enqueue("ada", time=3)  # wrong
greet.enqueue()  # wrong
work.enqueue("1")  # wrong
work("1")  # wrong
greet.using(quue="q")  # wrong
greet.using(delay="3")  # wrong
greet.bind(3)  # wrong
greet.enqueue_many([fetch.bind("u")])  # wrong
handle.result(timeout="3")  # wrong
app.job(nam="x")  # wrong
app.job(executor="fiber")  # wrong
greet.using(executor="process")  # wrong
Detent(quue="q")  # wrong
chain(greet.bind(3))  # wrong
chain(greet)  # wrong
app.start(greet.bind("ada"))  # wrong
app.schedules.add("@daily", greet)  # wrong
app.schedules.add("@daily", greet.bind("ada"), overlap="maybe")  # wrong
app.schedule("@daily", zone="UTC")  # wrong
app.job(conn=object())  # wrong


async def tick(worker: WorkerContext) -> None:
    assert_type(worker.handover.attempt, int)
    await worker.acheckpoint()


def tick_in_thread(worker: WorkerContext) -> None:
    worker.stopping.wait()


def no_context() -> None: ...


async def supervise() -> None:
    inner = Supervisor(Spec("box", Container("redis:7", options=["--init"])))
    async with Supervisor(
        Spec("tick", Function(tick, suspendable=True), restart="on_failure"),
        Spec("thread", Function(tick_in_thread), backoff=RestartBackoff(max_restarts=None)),
        Spec("web", Process("python", "-m", "http.server", env={"A": "b"}), grace=5),
        Spec("branch", inner, probe=Probe(restart=True)),
        strategy="rest_for_one",
    ) as supervisor:
        assert_type(supervisor.tree(), Snapshot)
        assert_type(supervisor.status("web").pid, int | None)
        assert_type(await supervisor.check("web"), Snapshot)
        assert_type(supervisor.output("web"), list[str])
        async for tree in supervisor.watch():
            assert_type(tree.children, tuple[Snapshot, ...])
        await supervisor.stop("web", grace=1)
        await supervisor.add(Spec("a", Function(no_context)))  # wrong
        await supervisor.add(Spec("a", tick))  # wrong
        Spec("a", Function(tick), restart="sometimes")  # wrong
        Supervisor(strategy="all")  # wrong
