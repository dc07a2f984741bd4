"""Workers that fall silent, keys for clients that can set no header, and what else there is."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from msgspec import Raw
from msgspec.structs import replace

from detent import Detent, stages
from detent.cli.serve import leases
from detent.engine.access import Scope
from detent.engine.engine import Engine
from detent.engine.keeping import name_in
from detent.engine.verify import Verification
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor
from detent.stores.api import Record
from detent.surfaces.http.exchange import Settings
from detent.surfaces.jobnik.keeping import KIND, StageKept, written
from tests.postgres.server import databases
from tests.surfaces.jobnik import Jobnik, at_once, fresh, problem
from tests.surfaces.server import Running, eventually, on, running

SHORT = "short"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('jobnik')}/detent.db"
    return databases().kept()


@pytest.fixture(scope="module")
def hasty(url: str) -> Iterator[Running]:
    """A server that trusts workers of one type only for a moment."""
    with running(url, Settings(jobnik_leases_s={SHORT: 0.2})) as found:
        yield found


@pytest.fixture
def short(hasty: Running) -> Iterator[Jobnik]:
    found = Jobnik(hasty.port)
    yield found
    found.close()


@pytest.fixture(scope="module")
def patient(url: str) -> Iterator[Jobnik]:
    """A client of another server of the same store, whose leases do not end during a test."""
    with running(url, Settings()) as found:
        client = Jobnik(found.port)
        yield client
        client.close()


def lose(client: Jobnik, task: str) -> None:
    """Take the task under a lease that ends at once, and wait until it is offered again."""
    assert client.take(SHORT) == task
    eventually(lambda: state_of(client, task) == "available")


def state_of(client: Jobnik, task: str) -> str:
    """The state of the job behind the task: Jobnik has no word for one that was lost."""
    return str(client.ask("GET", f"/ojs/v1/jobs/{task}").ok()["job"]["state"])


def history(url: str, task: str) -> Sequence[Event]:
    found: Sequence[Event] = on(url, lambda engine: engine.store.history(("", task)))
    return found


def test_a_task_whose_worker_is_silent_is_offered_again_and_not_charged(short: Jobnik) -> None:
    job = short.job()
    stage = short.stage(job, SHORT)
    [task] = short.tasks(stage, maxAttempts=1)
    lose(short, task)
    # Its worker may be busy with it, and asks for its status before it reports.
    assert short.status(task) == "IN_PROGRESS"
    assert short.get(f"/tasks/{task}")["attempts"] == 0
    assert short.counts(stage) == {"inProgress": 1}
    assert [one["id"] for one in short.get(f"/tasks?stage_id={stage}&status=IN_PROGRESS")] == [task]
    assert short.states(job) == ("IN_PROGRESS", ["IN_PROGRESS"])
    assert short.work(SHORT) == "COMPLETED"
    assert short.states(job) == ("COMPLETED", ["COMPLETED"])


@pytest.mark.parametrize("losses", [1, 2, 5])
def test_a_task_that_takes_longer_than_its_lease_completes(
    short: Jobnik, url: str, losses: int
) -> None:
    job = short.job()
    stage = short.stage(job, SHORT)
    [task] = short.tasks(stage)
    for _ in range(losses):
        lose(short, task)
    told = short.tell(task, "COMPLETED").ok()
    assert (told["status"], told["attempts"]) == ("COMPLETED", 0)
    assert short.counts(stage) == {"completed": 1}
    assert short.states(job) == ("COMPLETED", ["COMPLETED"])
    problem(short.tell(task, "COMPLETED"), 400, "ILLEGAL_TASK_STATUS_TRANSITION")
    *_, claim, end = history(url, task)
    assert (claim.name, end.name, end.command_id) == ("claim", "complete", claim.command_id)


def test_the_late_report_of_a_failure_counts_as_a_failure(short: Jobnik, url: str) -> None:
    job = short.job()
    stage = short.stage(job, SHORT)
    [task] = short.tasks(stage, maxAttempts=2)
    lose(short, task)
    told = short.tell(task, "FAILED").ok()
    assert (told["status"], told["attempts"]) == ("RETRIED", 1)
    # What has been reported is over: whoever reports again means a run that has ended.
    refused = short.tell(task, "COMPLETED")
    illegal = "Illegal status transition from RETRIED to COMPLETED"
    problem(refused, 400, "ILLEGAL_TASK_STATUS_TRANSITION", illegal)
    lose(short, task)
    lose(short, task)
    assert short.tell(task, "FAILED").ok()["status"] == "FAILED"
    assert short.states(job) == ("FAILED", ["FAILED"])

    async def attempts(engine: Engine) -> list[int]:
        [stored] = await engine.store.get([("", task)])
        assert stored is not None
        return [one.attempt for one in stored.failures]

    assert on(url, attempts) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("has_lease", [True, False])
def test_a_late_report_after_another_worker_has_taken_the_task(
    short: Jobnik, patient: Jobnik, has_lease: bool
) -> None:
    [task] = short.tasks(short.stage(short.job(), SHORT))
    dequeue = f"/stages/{SHORT}/tasks/dequeue"
    first = short.ask("PATCH", dequeue).headers["x-detent-lease"]
    eventually(lambda: state_of(short, task) == "available")
    second = patient.ask("PATCH", dequeue).headers["x-detent-lease"]
    if has_lease:
        refused = short.tell(task, "COMPLETED", X_Detent_Lease=first)
        problem(refused, 409, "TASK_STATUS_UPDATE_FAILED")
        assert patient.tell(task, "COMPLETED", X_Detent_Lease=second).status == 200
    else:
        # Nothing tells the two apart, so it is taken for the report of the second.
        assert short.tell(task, "COMPLETED").status == 200
        problem(patient.tell(task, "COMPLETED"), 400, "ILLEGAL_TASK_STATUS_TRANSITION")


def test_a_late_report_may_name_the_lease_that_has_ended(short: Jobnik) -> None:
    [task] = short.tasks(short.stage(short.job(), SHORT))
    lease = short.ask("PATCH", f"/stages/{SHORT}/tasks/dequeue").headers["x-detent-lease"]
    eventually(lambda: state_of(short, task) == "available")
    assert short.tell(task, "COMPLETED", X_Detent_Lease=lease).ok()["status"] == "COMPLETED"


def test_of_late_reports_at_once_one_counts(short: Jobnik) -> None:
    stage = short.stage(short.job(), SHORT)
    [task] = short.tasks(stage)
    lose(short, task)
    told = [("PUT", f"/tasks/{task}/status", {"status": "COMPLETED"})] * 6
    answers = sorted(one.status for one in at_once(short.port, told))
    assert answers[0] == 200
    assert set(answers[1:]) <= {400, 409}
    assert short.counts(stage) == {"completed": 1}


@pytest.mark.parametrize("word", ["PAUSED", "ABORTED"])
def test_a_late_report_under_a_job_that_was_paused_or_aborted_meanwhile(
    short: Jobnik, word: str
) -> None:
    job = short.job()
    [task] = short.tasks(short.stage(job, SHORT))
    for _ in range(3):
        lose(short, task)
    short.steer(job, word).ok()
    if word == "PAUSED":
        assert short.tell(task, "COMPLETED").ok()["status"] == "COMPLETED"
        assert short.states(job) == ("PAUSED", ["COMPLETED"])
        short.steer(job, "PENDING").ok()
        assert short.states(job) == ("COMPLETED", ["COMPLETED"])
    else:
        # It was offered to others, so it is called off with everything that waits.
        eventually(lambda: state_of(short, task) == "cancelled")
        problem(short.tell(task, "COMPLETED"), 400, "ILLEGAL_TASK_STATUS_TRANSITION")
        assert short.states(job) == ("ABORTED", ["ABORTED"])
        short.nothing(SHORT)


def test_the_usual_lease_is_half_an_hour(short: Jobnik, url: str) -> None:
    type_ = fresh()
    [task] = short.tasks(short.stage(short.job(), type_))
    short.take(type_)

    async def lease(engine: Engine) -> int | None:
        [stored] = await engine.store.get([("", task)])
        return None if stored is None else stored.job.lease_us

    assert on(url, lease) == 1_800_000_000


def test_how_leases_are_told_to_the_command() -> None:
    assert leases(["a=b=2.5", "c=1", "c=3"]) == (1_800.0, {"a=b": 2.5, "c": 3.0})
    assert leases(["60"]) == (60.0, {})
    for bad in ("a=", "a", "0", "a=-1", "a=nan", "99999999"):
        with pytest.raises(typer.BadParameter):
            leases([bad])


def test_a_task_is_a_job_of_open_job_spec_too(short: Jobnik) -> None:
    type_ = fresh()
    [task] = short.tasks(short.stage(short.job(), type_), userMetadata={"a": 1})
    told = short.ask("GET", f"/ojs/v1/jobs/{task}").ok()["job"]
    assert (told["type"], told["queue"], told["state"]) == (type_, type_, "available")
    assert told["args"] == [{"n": 0}]
    assert told["meta"]["userMetadata"] == {"a": 1}
    # Nobody takes it over another protocol, nor calls one task off: that is its job's business.
    asked = {"queues": [type_], "worker_id": "w"}
    assert short.ask("POST", "/ojs/v1/workers/fetch", asked).ok()["jobs"] == []


# --- the same life through Python ---------------------------------------------------------------


def moves(history: Sequence[Event]) -> list[tuple[str, str | None, str | None, str]]:
    """What moved, and by what kind of actor; amendments are no moves."""
    return [(e.name, e.source, e.target, e.actor) for e in history if e.target is not None]


async def lived(engine: Engine, workflow: str) -> list[list[tuple[Any, ...]]]:
    """The moves of a workflow, of its steps in order, and of their jobs."""
    [flow] = await engine.store.flows([("", workflow)])
    assert flow is not None
    jobs = [
        one.job_id
        for step in flow.steps
        for one in await engine.workflows.results_of(("", workflow), name_in(workflow, step))
    ]
    names = [workflow, *flow.steps, *jobs]
    return [list(moves(await engine.store.history(("", name)))) for name in names]


def test_a_life_with_an_approval_leaves_the_history_that_python_leaves(
    tmp_path: Path, short: Jobnik, url: str
) -> None:
    type_, job = fresh(), short.job()
    made = [short.stage(job, type_, startAsWaiting=number == 1) for number in range(3)]
    for stage in made:
        short.tasks(stage)
    short.work(type_)
    short.release(made[1]).ok()
    short.work(type_)
    short.work(type_)
    assert short.states(job) == ("COMPLETED", ["COMPLETED"] * 3)

    app = Detent(f"sqlite:///{tmp_path}/python.db")

    @app.job
    def part() -> None:
        """Nothing to do."""

    shape = stages({"one": part.bind(), "two": part.bind(), "three": part.bind()}, gate=["two"])
    with app:
        handle = app.start(shape)
        app.drain()
        handle.approve("two")
        app.drain()
    there = on(url, lambda engine: lived(engine, job))
    assert there == on(f"sqlite:///{tmp_path}/python.db", lambda e: lived(e, handle.id))
    assert len(there) == 1 + 3 + 3


def test_nothing_that_is_stored_contradicts_the_histories(short: Jobnik, url: str) -> None:
    job = short.job()
    type_ = fresh()
    [task] = short.tasks(short.stage(job, type_))
    short.take(type_)
    short.steer(job, "ABORTED").ok()
    short.ask("DELETE", f"/jobs/{job}").ok()

    async def sound(engine: Engine) -> list[Any]:
        [stored] = await engine.store.get([("", task)])
        assert stored is not None
        assert stored.body.payload != '[{"n":0}]'
        return [one async for one in Verification(engine.store).findings()]

    assert on(url, sound) == []


def test_an_operator_puts_a_gate_before_a_stage_that_runs(short: Jobnik, url: str) -> None:
    type_, job = fresh(), short.job()
    stage = short.stage(job, type_)
    [first, _] = short.tasks(stage, 2)
    short.tasks(short.stage(job, type_))
    short.take(type_)
    name, by = f"{type_} {stage}", By(Actor.USER, "ada")
    on(url, lambda engine: engine.workflows.wait(("", job), name, by, "not yet"))
    assert short.states(job) == ("IN_PROGRESS", ["WAITING", "CREATED"])
    short.nothing(type_)
    # What runs may report; what follows from it waits for the release.
    assert short.tell(first, "FAILED").ok()["status"] == "FAILED"
    assert short.states(job) == ("IN_PROGRESS", ["WAITING", "CREATED"])
    short.release(stage).ok()
    assert short.states(job) == ("FAILED", ["FAILED", "CREATED"])


def test_a_job_of_more_tasks_than_one_commit_holds_is_deleted_too(short: Jobnik) -> None:
    type_, job = fresh(), short.job()
    stage = short.stage(job, type_)
    tasks = [*short.tasks(stage, 600), *short.tasks(stage, 600)]
    short.steer(job, "ABORTED").ok()
    short.ask("DELETE", f"/jobs/{job}").ok()
    assert short.get(f"/tasks?stage_type={type_}") == []
    problem(short.ask("GET", f"/tasks/{tasks[0]}"), 404, "TASK_NOT_FOUND")
    problem(short.ask("GET", f"/stages/{stage}"), 404, "STAGE_NOT_FOUND")


def test_what_is_kept_of_a_stage_goes_when_its_workflow_is_gone(short: Jobnik, url: str) -> None:
    gone, there = "00000000-0000-7000-8000-000000000001", short.stage(short.job(), fresh())

    async def kept(engine: Engine) -> list[Record | None]:
        return list(await engine.store.record([(KIND, "", gone), (KIND, "", there)]))

    async def wake(engine: Engine) -> None:
        lost = StageKept(job=gone, type="t", data=Raw(b"{}"))
        [_, found] = await kept(engine)
        assert found is not None
        for record in (written(lost, ("", gone), 1, 0), replace(found, version=2, wake_at=1)):
            assert await engine.put(replace(record, wake_at=1))

    on(url, wake)
    eventually(lambda: on(url, kept)[0] is None)
    assert short.get(f"/stages/{there}")["id"] == there


# --- who may call -------------------------------------------------------------------------------


def test_keys_for_clients_that_can_set_nothing_but_an_address(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/guarded.db"

    def key(*scopes: Scope, **more: Any) -> str:
        return str(on(url, lambda engine: engine.access.create(scopes, **more))[1])

    other = key(Scope.ADMIN, tenants=("acme",))
    maker, worker = key(Scope.PRODUCE, Scope.READ), key(Scope.WORK, Scope.READ, queues=("mine*",))
    basic = base64.b64encode(f"any:{maker}".encode()).decode()
    with running(url, Settings()) as server:
        stranger = Jobnik(server.port)
        problem(stranger.ask("GET", "/jobs"), 401, "UNKNOWN_ERROR")
        assert stranger.get("/liveness") == {"status": "ok"}
        user = Jobnik(server.port, f"/k/{maker}")
        job = user.job()
        stage = user.stage(job, "mine/1")
        [task] = user.tasks(stage)
        hidden = user.stage(user.job(), "theirs")
        [secret] = user.tasks(hidden)
        again = Jobnik(server.port, Authorization=f"Basic {basic}")
        assert again.get(f"/jobs/{job}")["id"] == job
        problem(user.ask("PATCH", "/stages/mine%2F1/tasks/dequeue"), 403, "UNKNOWN_ERROR")
        problem(user.ask("DELETE", f"/jobs/{job}"), 403, "UNKNOWN_ERROR")
        hand = Jobnik(server.port, f"/k/{worker}")
        problem(hand.ask("PATCH", "/stages/theirs/tasks/dequeue"), 403, "UNKNOWN_ERROR")
        problem(hand.ask("POST", "/jobs", {"name": "ab", "data": {}}), 403, "UNKNOWN_ERROR")
        for path in (f"/stages/{hidden}", f"/stages/{hidden}/tasks", f"/tasks/{secret}"):
            problem(hand.ask("GET", path), 403, "UNKNOWN_ERROR")
        assert [one["id"] for one in hand.get("/stages")] == [stage]
        assert [one["id"] for one in hand.get("/tasks")] == [task]
        for path in ("/jobs", "/service-metrics"):
            problem(hand.ask("GET", path), 403, "UNKNOWN_ERROR")
        assert len(hand.get(f"/jobs/{job}?should_return_stages=true")["stages"]) == 1
        assert hand.take("mine%2F1") == task
        assert hand.ask("PATCH", f"/tasks/{task}/user-metadata", {"a": 1}).status == 200
        assert hand.tell(task, "COMPLETED").status == 200
        foreign = Jobnik(server.port, f"/k/{other}")
        assert foreign.get("/jobs") == []
        for path in (f"/jobs/{job}", f"/stages/{stage}", f"/tasks/{task}"):
            assert foreign.ask("GET", path).status == 404
        assert [one["id"] for one in user.get("/jobs")] != [foreign.job()]
        assert len(foreign.get("/jobs")) == 1
        for one in (stranger, user, again, hand, foreign):
            one.close()
