"""Workflows as a program writes them down: shaped, started, steered, and what comes out."""

from __future__ import annotations

from typing import Any

import pytest

from detent import (
    BadArguments,
    Context,
    Detent,
    Ending,
    Limit,
    ResultTimeout,
    WorkflowAborted,
    WorkflowFailed,
    batch,
    chain,
    dag,
    group,
    stages,
)
from detent.errors import BadOption, BadPolicy, IllegalTransition, PayloadTooLarge, UnknownWorkflow


class Jobs:
    """A few jobs of one app."""

    def __init__(self, app: Detent) -> None:
        self.said: list[Any] = []

        @app.job
        def number(value: int) -> int:
            return value

        @app.job(retry=0)
        def broken() -> None:
            raise ValueError("broken")

        @app.job
        def total(ctx: Context) -> int:
            return sum(ctx.results())

        @app.job
        async def atotal(ctx: Context, step: str | None = None) -> int:
            return sum(await ctx.aresults(step))

        @app.job
        def say(ctx: Context, word: str) -> str:
            self.said.append((word, [one.state for one in ctx.endings()]))
            return word

        self.number, self.broken, self.total = number, broken, total
        self.atotal, self.say = atotal, say


@pytest.fixture
def jobs(app: Detent) -> Jobs:
    return Jobs(app)


def states(status: Any) -> str:
    return " ".join([status.state, *(f"{one.name}:{one.state}" for one in status.steps)])


def test_a_chain_hands_results_from_step_to_step(app: Detent, jobs: Jobs) -> None:
    handle = app.start(
        chain(jobs.number.bind(1), [jobs.total.bind(), jobs.number.bind(5)], jobs.atotal.bind()),
        name="sums",
        meta={"who": "ada"},
    )
    assert handle.is_new
    assert handle.progress() == 0
    app.drain()
    assert handle.result() == [6]
    assert handle.results("2") == [1, 5]
    status = handle.status()
    assert (status.name, status.percent, status.cause) == ("sums", 100, "succeeded")
    assert status.is_ended
    assert [step.after for step in status.steps] == [(), ("1",), ("2",)]


def test_a_step_may_ask_for_results_from_further_back_but_not_from_elsewhere(
    app: Detent, jobs: Jobs
) -> None:
    far = app.start(chain(jobs.number.bind(7), jobs.number.bind(0), jobs.atotal.bind("1")))
    elsewhere = app.start(chain(jobs.number.bind(7), jobs.atotal.bind("nowhere")))
    app.drain()
    assert far.result() == [7]
    with pytest.raises(WorkflowFailed):
        elsewhere.result()


def test_a_job_of_no_workflow_has_no_results_before_it(app: Detent, jobs: Jobs) -> None:
    handle = jobs.total.enqueue()
    app.drain()
    assert handle.result() == 0


def test_results_arrive_as_the_types_that_were_promised(app: Detent) -> None:
    @app.job
    def words() -> set[str]:
        return {"a", "b"}

    seen: list[Ending] = []

    @app.job
    def look(ctx: Context) -> None:
        seen.extend(ctx.endings())

    handle = app.start(chain(words.bind(), look.bind()))
    app.drain()
    assert handle.result() == [None]
    assert [(one.type, one.state, one.value) for one in seen] == [
        ("words", "completed", {"a", "b"})
    ]


def test_a_group_runs_at_once_and_answers_in_the_order_of_its_calls(
    app: Detent, jobs: Jobs
) -> None:
    handle = app.start(group(*(jobs.number.bind(n) for n in range(30))))
    app.drain()
    assert handle.result() == list(range(30))
    assert handle.status().step("jobs").completed == 30


@pytest.mark.parametrize("broken", [False, True])
def test_a_batch_calls_back_by_how_it_ended(app: Detent, jobs: Jobs, broken: bool) -> None:
    calls = [jobs.number.bind(1), jobs.broken.bind() if broken else jobs.number.bind(2)]
    handle = app.start(
        batch(
            calls,
            on_success=jobs.say.bind("well"),
            on_failure=jobs.say.bind("alas"),
            on_complete=jobs.say.bind("done"),
        )
    )
    app.drain()
    ends = ["completed", "discarded" if broken else "completed"]
    assert sorted(jobs.said) == sorted([("alas" if broken else "well", ends), ("done", ends)])
    assert handle.status().is_ended


def test_a_gate_waits_for_an_approval(app: Detent, jobs: Jobs) -> None:
    shape = stages({"build": jobs.number.bind(3), "ship": [jobs.total.bind()]}, gate=["ship"])
    handle = app.start(shape)
    with pytest.raises(IllegalTransition):
        handle.approve("nowhere")
    app.drain()
    assert handle.status().step("ship").needs_approval
    assert handle.progress() == 50
    with pytest.raises(ResultTimeout):
        handle.result(timeout=0.01)
    handle.approve("ship", "ada has seen it")
    app.drain()
    assert handle.result() == [3]


async def test_everything_can_be_awaited(app: Detent, jobs: Jobs) -> None:
    handle = await app.astart(stages({"a": jobs.number.bind(1), "b": []}))
    await handle.aadd("b", [jobs.number.bind(2)])
    assert (await handle.apause("wait")).state == "paused"
    assert await app.adrain() == []
    await handle.aresume()
    await app.adrain()
    assert await handle.aresult() == [2]
    assert await handle.aprogress() == 100


def test_a_graph_joins_what_it_comes_after(app: Detent, jobs: Jobs) -> None:
    steps = {"a": jobs.number.bind(1), "b": jobs.number.bind(2), "c": jobs.total.bind()}
    handle = app.start(dag(steps, after={"c": ["a", "b"]}))
    app.drain()
    assert handle.result() == [3]


def test_a_failure_is_told_with_the_step_that_failed(app: Detent, jobs: Jobs) -> None:
    handle = app.start(chain(jobs.number.bind(1), jobs.broken.bind(), jobs.number.bind(2)))
    app.drain()
    with pytest.raises(WorkflowFailed) as caught:
        handle.result()
    assert caught.value.fields["steps"] == ["2"]
    assert handle.progress() == 33


def test_an_aborted_workflow_has_no_result_and_leaves_nothing_to_run(
    app: Detent, jobs: Jobs
) -> None:
    handle = app.start(chain(jobs.number.bind(1), jobs.number.bind(2)))
    assert handle.abort("changed my mind").state == "aborted"
    assert app.drain() == []
    with pytest.raises(WorkflowAborted):
        handle.result()
    with pytest.raises(IllegalTransition):
        handle.pause()


def test_a_start_under_an_id_of_ones_own_can_be_repeated(app: Detent, jobs: Jobs) -> None:
    first = app.start(group(jobs.number.bind(1)), id="nightly-1")
    second = app.start(group(jobs.number.bind(1)), id="nightly-1")
    assert (first.id, second.id, second.is_new) == ("nightly-1", "nightly-1", False)
    with pytest.raises(IllegalTransition):
        app.start(group(jobs.number.bind(2)), id="nightly-1")
    app.drain()
    assert app.workflow("nightly-1").result() == [1]


def test_what_cannot_work_is_refused_where_it_is_written(app: Detent, jobs: Jobs) -> None:
    with pytest.raises(BadArguments):
        chain(jobs.number.bind("one"))  # type: ignore[arg-type]
    with pytest.raises(BadPolicy):
        chain()
    with pytest.raises(BadPolicy):
        batch([jobs.number.bind(1)])
    with pytest.raises(BadPolicy):
        dag({"a": jobs.number.bind(1)}, after={"b": ["a"]})
    with pytest.raises(BadPolicy):
        app.start(group(jobs.number.using(unique=True).bind(1)))
    with pytest.raises(BadOption):
        app.start(group(jobs.number.bind(1)), meta={"no": object()})
    with pytest.raises(PayloadTooLarge):
        app.start(group(jobs.say.bind("x" * 2_000_000)))
    with pytest.raises(UnknownWorkflow):
        app.workflow("nobody").status()
    assert app.drain() == []


def test_limits_hold_for_jobs_of_workflows_too(app: Detent) -> None:
    @app.job(limit=Limit(rate=1, per=60))
    def slow() -> int:
        return 1

    handle = app.start(group(slow.bind(), slow.bind()))
    app.drain()
    assert handle.progress() == 50


def test_a_workflow_belongs_to_the_tenant_of_its_jobs(app: Detent, jobs: Jobs) -> None:
    handle = app.start(group(jobs.number.using(tenant="acme").bind(1)))
    app.drain()
    assert handle.tenant == "acme"
    assert app.workflow(handle.id, "acme").result() == [1]


def test_a_workflow_larger_than_a_commit_is_made_in_pieces(app: Detent, jobs: Jobs) -> None:
    handle = app.start(group(*(jobs.number.bind(n) for n in range(1_200))))
    assert handle.status().step("jobs").waiting == 1_200
    assert states(handle.abort()) == "aborted jobs:aborted"
    assert repr(handle) == f"<WorkflowHandle {handle.id}>"
    assert repr(group(jobs.number.bind(1))) == "<Workflow jobs>"
