"""Jobnik's endpoints one by one: what they take, what they answer, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.surfaces.jobnik import NIL, ZEROS, Jobnik, fresh, problem

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
PARENT = f"00-{'a' * 32}-{'b' * 16}-01"
EMPTY = dict.fromkeys(
    ("pending", "inProgress", "completed", "failed", "created", "retried", "total"), 0
)
JOB = {"name": "ab", "data": {}}
STAGE = {"type": "t", "data": {}}


def test_a_job_as_it_is_made_and_read(jobnik: Jobnik) -> None:
    data, metadata = {"b": [1, None, "é"], "a": 10**20}, {"who": "me"}
    told = {"name": "xy", "data": data, "userMetadata": metadata, "priority": "HIGH"}
    made = jobnik.ask("POST", "/jobs", told)
    assert made.headers["content-type"] == "application/json; charset=utf-8"
    job = made.ok(201)
    assert TIME.fullmatch(job["creationTime"])
    assert job == {
        **told,
        "id": job["id"],
        "status": "PENDING",
        "percentage": 0,
        "creationTime": job["creationTime"],
        "updateTime": job["creationTime"],
        "traceparent": ZEROS,
    }
    assert jobnik.get(f"/jobs/{job['id']}") == job
    assert jobnik.get(f"/jobs/{job['id'].upper()}?should_return_stages=false") == job
    assert jobnik.get(f"/jobs/{job['id']}?should_return_stages=true") == {**job, "stages": []}
    assert jobnik.ask("POST", "/jobs", JOB).ok(201)["priority"] == "MEDIUM"


def test_a_stage_and_its_tasks_as_they_are_made_and_read(jobnik: Jobnik) -> None:
    job, type_ = jobnik.job(), fresh()
    told = {"type": type_, "data": {"x": 1}, "userMetadata": {"y": 2}}
    stage = jobnik.ask("POST", f"/jobs/{job}/stage", told).ok(201)
    assert stage == {
        **told,
        "id": stage["id"],
        "jobId": job,
        "order": 1,
        "status": "PENDING",
        "percentage": 0,
        "summary": EMPTY,
        "traceparent": ZEROS,
    }
    path = f"/stages/{stage['id']}"
    assert jobnik.get(path) == stage
    assert jobnik.get(f"{path}?should_return_tasks=true") == {**stage, "tasks": []}
    assert jobnik.get(f"/jobs/{job}/stages") == [stage]
    assert jobnik.get(f"/jobs/{job}?should_return_stages=true")["stages"] == [stage]
    asked = [{"data": {"n": n}, "userMetadata": {"m": n}, "maxAttempts": n + 1} for n in range(3)]
    tasks = jobnik.ask("POST", f"{path}/tasks", asked).ok(201)
    for one, given in zip(tasks, asked, strict=True):
        assert one == {
            **given,
            "id": one["id"],
            "stageId": stage["id"],
            "status": "PENDING",
            "attempts": 0,
            "creationTime": one["creationTime"],
            "updateTime": one["creationTime"],
            "traceparent": ZEROS,
        }
        assert jobnik.get(f"/tasks/{one['id']}") == one
    assert jobnik.get(f"{path}/tasks") == tasks
    assert jobnik.get(f"{path}?should_return_tasks=true")["tasks"] == tasks
    assert jobnik.get(f"/jobs/{job}/stages?should_return_tasks=true")[0]["tasks"] == tasks
    assert jobnik.get(f"{path}/summary") == {**EMPTY, "pending": 3, "total": 3}
    assert jobnik.ask("POST", f"{path}/tasks", [{"data": {}}]).ok(201)[0]["maxAttempts"] == 1


def test_times_and_attempts_of_a_task(jobnik: Jobnik) -> None:
    type_ = fresh()
    [task] = jobnik.tasks(jobnik.stage(jobnik.job(), type_), maxAttempts=3)
    for failures in (1, 2):
        taken = jobnik.ask("PATCH", f"/stages/{type_}/tasks/dequeue").ok()
        assert (taken["status"], taken["attempts"]) == ("IN_PROGRESS", failures - 1)
        assert TIME.fullmatch(taken["startTime"])
        failed = jobnik.tell(task, "FAILED").ok()
        assert (failed["status"], failed["attempts"]) == ("RETRIED", failures)
        assert failed["startTime"] == taken["startTime"]
        assert "endTime" not in failed
    jobnik.take(type_)
    done = jobnik.tell(task, "COMPLETED").ok()
    assert (done["status"], done["attempts"]) == ("COMPLETED", 2)
    assert done["endTime"] == done["updateTime"]
    assert jobnik.get(f"/tasks/{task}") == done


def test_metadata_is_replaced_whole_and_in_every_state(jobnik: Jobnik) -> None:
    job, type_ = jobnik.job(userMetadata={"a": 1}), fresh()
    stage = jobnik.stage(job, type_, userMetadata={"a": 1})
    [task] = jobnik.tasks(stage, userMetadata={"a": 1})
    before = jobnik.get(f"/jobs/{job}")["updateTime"]
    jobnik.work(type_)
    for kind, name in (("job", job), ("stage", stage), ("task", task)):
        path = f"/{kind}s/{name}"
        changed = jobnik.ask("PATCH", f"{path}/user-metadata", {"userMetadata": {"b": 2}})
        assert changed.ok() == {"code": f"{kind.upper()}_MODIFIED_SUCCESSFULLY"}
        found = jobnik.get(path)
        assert found["userMetadata"] == {"userMetadata": {"b": 2}}
        assert found["status"] == "COMPLETED"
        for bad in (b"[]", b'"x"', b"null", b"{"):
            answer = jobnik.ask("PATCH", f"{path}/user-metadata", bad)
            problem(answer, 400, "VALIDATION_ERROR")
        unknown = jobnik.ask("PATCH", f"/{kind}s/{NIL}/user-metadata", {})
        problem(unknown, 404, f"{kind.upper()}_NOT_FOUND", f"{kind.upper()}_NOT_FOUND")
    assert jobnik.get(f"/jobs/{job}")["updateTime"] > before


def test_a_new_priority_counts_at_the_next_dequeue(jobnik: Jobnik) -> None:
    type_ = fresh()
    jobs = [jobnik.job(priority=word) for word in ("LOW", "HIGH", "MEDIUM")]
    low, high, middle = [jobnik.tasks(jobnik.stage(job, type_), 2) for job in jobs]
    assert jobnik.take(type_) == high[0]
    path = f"/jobs/{jobs[0]}/priority"
    assert jobnik.ask("PATCH", path, {"priority": "VERY_HIGH", "more": 1}).ok() == {
        "code": "JOB_MODIFIED_SUCCESSFULLY"
    }
    same = jobnik.ask("PATCH", path, {"priority": "VERY_HIGH"})
    assert (same.status, same.text) == (204, b"")
    assert same.headers["reason"] == "PRIORITY_CANNOT_BE_UPDATED_TO_SAME_VALUE"
    assert jobnik.get(f"/jobs/{jobs[0]}")["priority"] == "VERY_HIGH"
    # What is added later inherits it; and of equals the oldest comes first.
    assert [jobnik.take(type_) for _ in range(5)] == [*low, high[1], *middle]
    assert jobnik.steer(jobs[1], "ABORTED").status == 200
    assert jobnik.ask("PATCH", f"/jobs/{jobs[1]}/priority", {"priority": "LOW"}).status == 200
    problem(jobnik.ask("PATCH", f"/jobs/{NIL}/priority", {"priority": "LOW"}), 404, "JOB_NOT_FOUND")


def test_traces_are_kept_as_given_or_taken_from_the_request(jobnik: Jobnik) -> None:
    job, type_ = jobnik.job(), fresh()
    stage = jobnik.stage(job, type_)

    def post(path: str, **more: Any) -> list[dict[str, Any]]:
        headers = {"traceparent": PARENT, "tracestate": "a=1,b=2"} if more.pop("ask", 0) else {}
        base = {"/jobs": JOB, f"/jobs/{job}/stage": STAGE}.get(path, {"data": {}})
        told = {**base, **more}
        body = [told] if path.endswith("tasks") else told
        made = jobnik.ask("POST", path, body, **headers).ok(201)
        return made if isinstance(made, list) else [made]

    for path in ("/jobs", f"/jobs/{job}/stage", f"/stages/{stage}/tasks"):
        [given] = post(path, traceparent=PARENT, tracestate="x=y")
        assert (given["traceparent"], given["tracestate"]) == (PARENT, "x=y")
        [alone] = post(path, tracestate="x=y")
        assert (alone["traceparent"], "tracestate" in alone) == (ZEROS, False)
        [asked] = post(path, ask=1)
        assert (asked["traceparent"], asked["tracestate"]) == (PARENT, "a=1,b=2")
        [empty] = post(path, traceparent=PARENT, tracestate="")
        assert (empty["traceparent"], "tracestate" in empty) == (PARENT, False)
        [both] = post(path, ask=1, traceparent=ZEROS)
        assert (both["traceparent"], "tracestate" in both) == (ZEROS, False)
        for field, bad in (
            ("traceparent", PARENT.upper()),
            ("traceparent", 1),
            ("tracestate", "A"),
        ):
            body: Any = {**(JOB if path == "/jobs" else STAGE), field: bad}
            body = [{"data": {}, field: bad}] if path.endswith("tasks") else body
            problem(jobnik.ask("POST", path, body), 400, "VALIDATION_ERROR")


def test_a_type_may_hold_anything_and_is_met_exactly(jobnik: Jobnik) -> None:
    job, type_ = jobnik.job(), fresh("a/b c%2F+é")
    jobnik.tasks(jobnik.stage(job, type_))
    jobnik.nothing("a")
    jobnik.nothing(f"{type_.split('-')[-1]}")
    encoded = f"a%2Fb%20c%252F%2B%C3%A9-{type_.split('-')[-1]}"
    taken = jobnik.ask("PATCH", f"/stages/{encoded}/tasks/dequeue").ok()
    assert jobnik.get(f"/stages/{taken['stageId']}")["type"] == type_
    jobnik.nothing("x" * 50)
    problem(jobnik.ask("PATCH", f"/stages/{'x' * 51}/tasks/dequeue"), 400, "VALIDATION_ERROR")
    assert jobnik.stage(job, "")
    for odd in ("%00", "%FF", "%ED%A0%80"):
        jobnik.nothing(odd)
        assert jobnik.get(f"/tasks?stage_type={odd}") == []
    # A body of a dequeue is ignored, and so is one of another type.
    ignored = jobnik.ask("PATCH", "/stages/nobody/tasks/dequeue", b"{", Content_Type="text/plain")
    problem(ignored, 404, "TASK_NOT_FOUND")


def test_both_generations_of_lists(jobnik: Jobnik) -> None:
    name, type_ = fresh("job"), fresh()
    jobs = [jobnik.job(name=name, priority=word) for word in ("LOW", "HIGH", "LOW")]
    stages = [jobnik.stage(jobs[0], type_) for _ in range(3)]
    tasks = jobnik.tasks(stages[0], 3)
    jobnik.take(type_)
    listed = (
        (f"/jobs?job_name={name}", jobs),
        (f"/stages?job_id={jobs[0]}", stages),
        (f"/stages/{stages[0]}/tasks?", tasks),
        (f"/tasks?stage_id={stages[0]}", tasks),
        (f"/tasks?stage_type={type_}", tasks),
    )
    for path, ids in listed:
        join = "" if path.endswith("?") else "&"
        assert [one["id"] for one in jobnik.get(path)] == ids
        page = jobnik.get(f"{path}{join}page=2&page_size=2")
        assert (page["total"], [one["id"] for one in page["items"]]) == (3, ids[2:])
        assert [one["id"] for one in jobnik.get(f"{path}{join}page=1")["items"]] == ids
        assert jobnik.get(f"{path}{join}page_size=1&page=9") == {"total": 3, "items": []}
        for bad in ("page=0", "page_size=101", "page_size=0", "page=x", "page=1&page=1"):
            problem(jobnik.ask("GET", f"{path}{join}{bad}"), 400, "VALIDATION_ERROR")
    assert [one["id"] for one in jobnik.get(f"/jobs?job_name={name}&priority=LOW")] == jobs[::2]
    shown = jobnik.get(f"/jobs?job_name={name}&should_return_stages=true")
    assert [len(one["stages"]) for one in shown] == [3, 0, 0]
    assert len(jobnik.get(f"/tasks?stage_id={stages[0]}&status=PENDING")) == 2
    words = f"/stages?stage_type={type_}&stage_operation_status="
    assert [one["id"] for one in jobnik.get(f"{words}CREATED")] == stages[1:]
    [one] = jobnik.get(f"{words}IN_PROGRESS&should_return_tasks=true")
    assert [task["id"] for task in one["tasks"]] == tasks
    assert jobnik.get(f"/stages?job_id={NIL}") == jobnik.get(f"/tasks?stage_id={NIL}") == []


def test_dates_are_inclusive_and_of_the_creation(jobnik: Jobnik) -> None:
    name, type_ = fresh("job"), fresh()
    job = jobnik.ask("POST", "/jobs", {**JOB, "name": name}).ok(201)
    stage = jobnik.stage(job["id"], type_)
    [task] = jobnik.ask("POST", f"/stages/{stage}/tasks", [{"data": {}}]).ok(201)
    for path, one in ((f"/jobs?job_name={name}", job), (f"/tasks?stage_id={stage}", task)):
        at = one["creationTime"]
        assert jobnik.get(f"{path}&from_date={at}&end_date={at}") == [one]
        assert jobnik.get(f"{path}&from_date={at.replace('Z', '%2B00:00')}") == [one]
        assert jobnik.get(f"{path}&from_date=2999-01-01T00:00:00Z") == []
        assert jobnik.get(f"{path}&end_date=1999-01-01T00:00:00Z") == []
        for bad in ("2026-01-01", "yesterday", "2026-13-01T00:00:00Z", ""):
            problem(jobnik.ask("GET", f"{path}&from_date={bad}"), 400, "VALIDATION_ERROR")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/{}"),
        ("DELETE", "/jobs/{}"),
        ("PUT", "/jobs/{}/status"),
        ("GET", "/jobs/{}/stages"),
        ("POST", "/jobs/{}/stage"),
        ("GET", "/stages/{}"),
        ("GET", "/stages/{}/summary"),
        ("PUT", "/stages/{}/status"),
        ("GET", "/stages/{}/tasks"),
        ("POST", "/stages/{}/tasks"),
        ("GET", "/tasks/{}"),
        ("PUT", "/tasks/{}/status"),
    ],
)
def test_what_is_not_there_and_what_is_no_id(jobnik: Jobnik, method: str, path: str) -> None:
    bodies: dict[str, Any] = {
        "status": {"status": "PENDING"},
        "stage": STAGE,
        "tasks": [{"data": {}}],
    }
    body = bodies.get(path.rsplit("/", maxsplit=1)[-1]) if method != "GET" else None
    if path.startswith("/tasks") and body:
        body = {"status": "COMPLETED"}
    code = {"j": "JOB", "s": "STAGE", "t": "TASK"}[path[1]] + "_NOT_FOUND"
    problem(jobnik.ask(method, path.format(NIL), body), 404, code, code)
    for bad in (NIL.replace("-", ""), "x", NIL[:-1]):
        problem(jobnik.ask(method, path.format(bad), body), 400, "VALIDATION_ERROR")
    problem(jobnik.ask(method, path.format(NIL) + "?x=1", body), 400, "VALIDATION_ERROR")


JOBS_BAD: list[Any] = [
    {"name": "ab"},
    {"data": {}},
    {**JOB, "name": "a"},
    {**JOB, "name": "a" * 51},
    {**JOB, "name": 7},
    {**JOB, "data": []},
    {**JOB, "data": None},
    {**JOB, "userMetadata": "x"},
    {**JOB, "priority": "URGENT"},
    {**JOB, "priority": None},
    {**JOB, "status": "PENDING"},
    {**JOB, "id": NIL},
    {**JOB, "data": {"x": "\0"}},
    {**JOB, "data": {"\0": [1]}},
    [],
    b"",
    b"{",
    b"\xff",
    b"null",
    b"[" * 100_000,
]
STAGES_BAD: list[Any] = [
    {"type": "t"},
    {"data": {}},
    {**STAGE, "type": "t" * 51},
    {**STAGE, "startAsWaiting": None},
    {**STAGE, "startAsWaiting": "true"},
    {**STAGE, "order": 1},
    {**STAGE, "status": "PENDING"},
    {**STAGE, "id": NIL},
    {**STAGE, "percentage": 1},
]
TASKS_BAD: list[Any] = [
    [],
    {"data": {}},
    [{"data": {}}, {}],
    [{"data": []}],
    [{"data": {}, "maxAttempts": 0}],
    [{"data": {}, "maxAttempts": 2**31}],
    [{"data": {}, "maxAttempts": 1.5}],
    [{"data": {}, "maxAttempts": True}],
    [{"data": {}, "maxAttempts": "1"}],
    [{"data": {}, "attempts": 1}],
]


def test_bodies_that_cannot_be_meant_leave_no_trace(jobnik: Jobnik) -> None:
    job = jobnik.job()
    stage = jobnik.stage(job, "t")
    bad = [("/jobs", JOBS_BAD), (f"/jobs/{job}/stage", STAGES_BAD)]
    for path, bodies in [*bad, (f"/stages/{stage}/tasks", TASKS_BAD)]:
        for body in bodies:
            answer = jobnik.ask("POST", path, body)
            problem(answer, 400, "VALIDATION_ERROR")
            assert answer.body["message"].startswith(("request/body", "the body is not UTF-8"))
    assert len(jobnik.get(f"/jobs/{job}/stages")) == 1
    assert jobnik.get(f"/stages/{stage}/summary") == EMPTY
    large = jobnik.ask("POST", f"/stages/{stage}/tasks", [{"data": {}, "maxAttempts": 2**31 - 1}])
    assert large.ok(201)[0]["maxAttempts"] == 2**31 - 1


def test_messages_of_the_schema(jobnik: Jobnik) -> None:
    told = {
        "must have required property 'name'": {"data": {}},
        "must NOT have additional properties": {**JOB, "x": 1},
        "/name must NOT have fewer than 2 characters": {**JOB, "name": "a"},
        "/data must be object": {**JOB, "data": []},
        "/priority must be equal to one of the allowed values: VERY_HIGH": {**JOB, "priority": "x"},
    }
    for message, body in told.items():
        assert message in jobnik.ask("POST", "/jobs", body).body["message"]


def test_types_and_sizes_of_bodies_come_before_what_they_say(jobnik: Jobnik) -> None:
    for kind in ("text/plain", ""):
        problem(jobnik.ask("POST", "/jobs", b"{", Content_Type=kind), 415, "UNKNOWN_ERROR")
    made = jobnik.ask("POST", "/jobs", JOB, Content_Type="application/json; charset=utf-8")
    assert made.status == 201
    large = {**JOB, "data": {"x": "y" * 1024 * 1024}, "bad": 1}
    problem(jobnik.ask("POST", "/jobs", large), 413, "UNKNOWN_ERROR")
    just = {**JOB, "data": {"x": "y" * 1024 * 1000}}
    assert jobnik.ask("POST", "/jobs", just).status == 201


def test_questions_behind_a_path_are_strict(jobnik: Jobnik) -> None:
    for bad in ("1", "yes", "TRUE", ""):
        answer = jobnik.ask("GET", f"/jobs?should_return_stages={bad}")
        problem(answer, 400, "VALIDATION_ERROR")
    twice = "/jobs?should_return_stages=true&should_return_stages=true"
    for path in (
        twice,
        "/jobs?nope=1",
        "/jobs?priority=x",
        "/tasks?status=DONE",
        "/stages?job_id=x",
    ):
        problem(jobnik.ask("GET", path), 400, "VALIDATION_ERROR")


def test_other_paths_and_methods(jobnik: Jobnik) -> None:
    for path in ("/nope", "/jobs/", "/stages/a/b/tasks/dequeue"):
        problem(jobnik.ask("GET", path), 404, "UNKNOWN_ERROR")
    for method, path in (
        ("PUT", "/jobs"),
        ("OPTIONS", "/jobs"),
        ("POST", "/stages/a/tasks/dequeue"),
        ("DELETE", f"/tasks/{NIL}"),
    ):
        problem(jobnik.ask(method, path), 405, "UNKNOWN_ERROR")
    assert jobnik.ask("HEAD", "/jobs").status == 405


def test_a_forbidden_word_is_refused_before_anything_is_looked_at(jobnik: Jobnik) -> None:
    allowed = {
        "jobs": ("IN_PROGRESS", "COMPLETED", "FAILED", "CREATED", "nope", 1),
        "stages": ("WAITING", "IN_PROGRESS", "COMPLETED", "FAILED", "ABORTED"),
        "tasks": ("PENDING", "IN_PROGRESS", "RETRIED"),
    }
    for kind, words in allowed.items():
        for word in words:
            answer = jobnik.ask("PUT", f"/{kind}/{NIL}/status", {"status": word})
            problem(answer, 400, "VALIDATION_ERROR")
        problem(jobnik.ask("PUT", f"/{kind}/{NIL}/status", {}), 400, "VALIDATION_ERROR")


def test_it_is_alive_and_counts(jobnik: Jobnik) -> None:
    assert jobnik.get("/liveness") == {"status": "ok"}
    type_ = fresh()
    jobnik.tasks(jobnik.stage(jobnik.job(priority="VERY_HIGH"), type_), 3)
    jobnik.take(type_)
    text = jobnik.ask("GET", "/service-metrics").text.decode()
    for line in (
        'jobnik_jobs_by_status{job_status="CREATED"} 0.0',
        f'jobnik_stages_by_status{{stage_status="IN_PROGRESS",stage_type="{type_}"}} 1.0',
        f'jobnik_tasks_by_status{{stage_type="{type_}",task_status="PENDING"}} 2.0',
        (
            'jobnik_tasks_count{priority="Very-High",'
            f'stage_type="{type_}",task_status="In-Progress"}} 1.0'
        ),
    ):
        assert line in text
    paths = jobnik.get("/docs/api.json")["paths"]
    assert sum(len(methods) for path, methods in paths.items() if path.startswith("/v1")) == 21
