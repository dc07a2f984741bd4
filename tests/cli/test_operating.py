"""`detent queues`, `schedules`, `workflow`, `prune` and `config`, on a real file."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from detent.cli.config import settings
from detent.cli.places import shown_url
from detent.engine.asks import Ask
from detent.engine.building import Created
from detent.engine.engine import Engine
from detent.engine.enqueueing import Enqueued
from detent.engine.shaping import Order, Part, stages
from detent.stores.api import Death, Who, WorkerRow
from tests.cli.inside import ADA, Desk
from tests.cli.test_jobs import finish


def build(desk: Desk) -> str:
    """A workflow whose second step waits for an approval."""

    async def work(engine: Engine) -> str:
        steps = {"build": Ask(type="a"), "deploy": Ask(type="b")}
        parts: tuple[Part, ...] = stages(steps, gate=["deploy"])
        made = await engine.workflows.create(Order(parts=parts, name="release"), ADA)
        assert isinstance(made, Created)
        return made.id

    return desk.do(work)


# --- queues ---------------------------------------------------------------------------------------


def test_queues_are_listed_with_their_jobs_pauses_and_limits(desk: Desk) -> None:
    assert desk.said("queues", "list") == "There are no queues.\n"
    desk.push()
    desk.said("queues", "pause", "default", "--as", "grace", "-r", "upgrade")
    desk.said("queues", "limit", "default", "--concurrency", "2", "--rate", "10", "--per", "1m")
    [row] = desk.data("queues", "list")["queues"]
    assert (row["name"], row["counts"], row["paused"]) == ("default", {"available": 1}, True)
    assert (row["paused_by"], row["reason"], row["active"]) == ("grace", "upgrade", 0)
    assert row["limit"] == {"concurrency": 2, "rate": 10, "period_us": 60_000_000}
    last = desk.said("queues", "list").splitlines()[-1]
    assert last.split()[:3] == ["default", "0", "1"]
    assert "by grace: upgrade" in last
    assert last.endswith("2 at once, 10 per 1 min, 0 run")


def test_a_pause_keeps_jobs_back_until_it_is_lifted(desk: Desk) -> None:
    desk.push(type="x")
    for name, flags in (("default", []), ("x", ["--is-type"])):
        assert desk.data("queues", "pause", name, *flags)["changed"]
        assert not desk.data("queues", "pause", name, *flags)["changed"]
        assert desk.claim().jobs == ()
        assert "already paused" in desk.said("queues", "pause", name, *flags)
        assert desk.said("queues", "resume", name, *flags).endswith(f"{name}: resumed\n")
        assert "not paused" in desk.said("queues", "resume", name, *flags)
    assert len(desk.claim().jobs) == 1


def test_a_limit_is_set_lifted_or_refused(desk: Desk) -> None:
    said = desk.said("queues", "limit", "acme", "--is-key", "--spacing", "5s")
    assert said == "The limit of key acme is one every 5 s.\n"
    assert desk.said("queues", "limit", "acme", "--is-key", "--lift").endswith("is lifted.\n")
    wrong: list[list[str]] = [[], ["--lift", "--rate", "1"], ["--spacing", "soon"], ["--rate", "0"]]
    for options in wrong:
        assert desk.run("queues", "limit", "acme", *options).code == 2


# --- schedules ------------------------------------------------------------------------------------


def test_a_schedule_lives_from_add_to_remove(desk: Desk) -> None:
    assert desk.said("schedules", "list") == "There are no schedules.\n"
    made = desk.data(
        *("schedules", "add", "nightly", "30 2 * * *", "report.send"),
        *(
            "--unknown-type",
            "--payload",
            '["sales"]',
            "--zone",
            "Europe/Berlin",
            "--as",
            "grace",
            "-r",
            "asked for",
        ),
    )
    assert (made["payload"], made["zone"], made["overlap"]) == (["sales"], "Europe/Berlin", "skip")
    job = desk.data("schedules", "fire", "nightly")["id"]
    assert desk.data("jobs", "show", job)["type"] == "report.send"
    assert desk.data("schedules", "pause", "nightly")["paused"]
    assert "paused" in desk.said("schedules", "list").splitlines()[-1]
    assert "fires next at" in desk.said("schedules", "resume", "nightly")
    [row] = desk.data("schedules", "list")["schedules"]
    first = row["changes"][0]
    assert (first["what"], first["actor_id"], first["reason"]) == ("added", "grace", "asked for")
    assert desk.run("schedules", "add", "nightly", "@daily", "x").code == 1
    assert desk.said("schedules", "remove", "nightly") == "nightly: removed\n"
    assert desk.data("schedules", "list") == {"schedules": []}
    assert desk.run("schedules", "fire", "nightly").complained.endswith("[unknown_schedule].")


@pytest.mark.parametrize("option", ["--reason", "--as"])
def test_who_and_why_are_told_in_few_words(desk: Desk, option: str) -> None:
    done = desk.run("queues", "pause", "default", option, "r" * 2_001)
    assert (done.code, "2000 characters" in done.complained) == (2, True)


def test_arguments_of_a_type_that_nobody_knows_are_not_stored(desk: Desk) -> None:
    args = ("schedules", "add", "x", "@daily", "pay", "--payload", '["tok-12345"]')
    refused = desk.run(*args)
    assert (refused.code, refused.complained[-15:]) == (2, "[unknown_type].")
    assert "tok-12345" not in refused.complained
    assert desk.run(*args[:-1], "[]").code == 0, "nothing in it could be secret"
    assert desk.said("schedules", "remove", "x") == "x: removed\n"

    async def work(engine: Engine) -> None:
        row = WorkerRow("w1", engine.store.now(), who=Who(types=("mail.send", "pay")))
        await engine.store.beat([row], now=engine.store.now())
        await engine.store.bury([Death("w1", "s1")], now=engine.store.now())

    desk.do(work)
    assert desk.run(*args).code == 0, "its program has been here, and has declared no secrets"


@pytest.mark.parametrize(
    "args",
    [
        ["x", "not cron", "t"],
        ["x", "@daily", "t", "--payload", "{"],
        ["x", "@daily", "t", "--payload", "[" * 2_000 + "]" * 2_000],
        ["x", "@daily", ""],
        ["x", "@daily"],
    ],
)
def test_a_schedule_that_cannot_work_ends_with_2(desk: Desk, args: list[str]) -> None:
    assert desk.run("schedules", "add", *args).code == 2
    assert desk.data("schedules", "list") == {"schedules": []}


# --- workflows ------------------------------------------------------------------------------------


def test_a_workflow_is_shown_and_steered(desk: Desk) -> None:
    assert desk.said("workflow", "list") == "There are no such workflows.\n"
    flow = build(desk)
    [row] = desk.data("workflow", "list")["workflows"]
    assert (row["id"], row["name"]) == (flow, "release")
    assert desk.data("workflow", "pause", flow, "-r", "wait")["answer"] == "accepted"
    assert desk.run("workflow", "pause", flow).code == 1
    assert desk.claim().jobs == ()
    assert desk.data("workflow", "resume", flow)["state"] == "pending"
    [taken] = desk.claim().jobs
    finish(desk, taken)
    said = desk.said("workflow", "show", flow)
    assert "done     50 %" in said
    assert said.splitlines()[-1].split()[-2:] == ["build", "approval"]
    assert desk.data("workflow", "approve", flow, "deploy")["answer"] == "accepted"
    steps = desk.data("workflow", "show", flow)["steps"]
    assert [(one["name"], one["needs_approval"]) for one in steps] == [
        ("build", False),
        ("deploy", False),
    ]
    assert desk.data("workflow", "abort", flow, "-r", "no")["state"] == "aborted"
    done = desk.run("workflow", "resume", flow, "--json")
    assert (done.code, done.data["answer"]) == (1, "refused")
    assert desk.run("workflow", "show", "nowhere").complained.endswith("[unknown_workflow].")


def test_a_workflow_is_drawn_and_a_gate_put_before_a_step(desk: Desk) -> None:
    flow = build(desk)
    [taken] = desk.claim().jobs
    assert desk.data("workflow", "wait", flow, "build", "-r", "look")["answer"] == "accepted"
    assert desk.data("workflow", "wait", flow, "build")["answer"] == "unchanged"
    finish(desk, taken)
    assert desk.said("workflow", "tree", flow).splitlines() == [
        "release  in_progress  ░░░░░░░░░░   0 %",
        "├─ build   waiting      ██████████ 100 %  1 of 1 completed, needs approval",
        "└─ deploy  waiting      ░░░░░░░░░░   0 %  0 of 1 completed, needs approval",
    ]
    assert desk.data("workflow", "approve", flow, "build")["answer"] == "accepted"
    assert desk.data("workflow", "tree", flow)["percentage"] == 50
    assert desk.run("workflow", "wait", flow, "build").code == 1
    picture = ET.fromstring(desk.said("workflow", "tree", flow, "--format", "svg"))  # noqa: S314 - our own text
    nodes = {
        one.get("data-node"): one.get("class", "")
        for one in picture.iter()
        if "data-node" in one.attrib
    }
    assert list(nodes) == ["build", "deploy"]
    assert "state-waiting" in nodes["deploy"]
    [edge] = [one for one in picture.iter() if "data-source" in one.attrib]
    assert (edge.get("data-source"), edge.get("data-target")) == ("build", "deploy")
    assert desk.run("workflow", "tree", flow, "--format", "svg", "--json").code == 2


def test_workflows_are_listed_page_by_page(desk: Desk) -> None:
    flows = [build(desk) for _ in range(3)][::-1]
    page = desk.data("workflow", "list", "--limit", "2")
    assert [one["id"] for one in page["workflows"]] == flows[:2]
    rest = desk.data("workflow", "list", "--limit", "2", "--after", page["after"])
    assert ([one["id"] for one in rest["workflows"]], rest["after"]) == (flows[2:], None)
    assert "--after" in desk.said("workflow", "list", "--limit", "2")
    assert desk.data("workflow", "list", "--state", "aborted")["workflows"] == []


# --- prune ----------------------------------------------------------------------------------------


def test_what_ended_long_enough_ago_is_forgotten_but_stays_proven(desk: Desk) -> None:
    cancelled(desk, 2)
    desk.push()
    flow = build(desk)
    young = ("prune", "--cancelled", "1d", "--dry-run")
    assert desk.said(*young) == "0 jobs would be forgotten. Nothing was changed.\n"
    told = ("prune", "--cancelled", "30m", "--completed", "30m")
    assert desk.data(*told, "--dry-run")["jobs"] == 2
    assert desk.data(*told, "--dry-run", "--queue", "other")["jobs"] == 0
    assert len(desk.data("jobs", "list", "--state", "cancelled")["jobs"]) == 2
    assert desk.said(*told) == "2 jobs forgotten; 1 block sealed first.\n"
    assert desk.data(*told, "--all-tenants")["jobs"] == 0
    assert desk.data("jobs", "list", "--state", "cancelled")["jobs"] == []
    assert desk.data("workflow", "show", flow)["id"] == flow
    assert "all is well" in desk.said("verify", "--store", desk.url)


def cancelled(desk: Desk, number: int) -> None:
    """So many jobs that were cancelled an hour ago."""

    async def work(engine: Engine) -> None:
        for made in await engine.enqueue([Ask(type="x")] * number, ADA):
            assert isinstance(made, Enqueued)
            await engine.operators.cancel(("", made.job.id), ADA)

    desk.do(work, ago_us=3_600_000_000)


def test_what_may_go_must_be_said(desk: Desk) -> None:
    assert "say what may go" in desk.run("prune").complained
    assert "no length of time" in desk.run("prune", "--completed", "ever").complained


# --- config ---------------------------------------------------------------------------------------


def test_every_setting_says_where_it_comes_from(desk: Desk) -> None:
    data = desk.data("config", "show")
    assert data["store"] == {"value": desk.url, "origin": "DETENT_STORE"}
    assert data["app"] == data["store"]
    assert data["actor"]["origin"] == "user of the system"
    said = desk.said("config", "show", "--origin", "--store", "memory:", "--as", "grace")
    words = " ".join(said.split())
    assert "memory: --store" in words
    assert "grace --as" in words
    assert "origin" not in desk.said("config", "show")


def test_passwords_are_not_shown() -> None:
    url = "postgresql://me:secret@db.example.org:5432/jobs?sslmode=require"
    assert shown_url(url) == "postgresql://me:***@db.example.org:5432/jobs?sslmode=require"
    found = settings({"DATABASE_URL": url, "NO_COLOR": "", "FORCE_COLOR": "1"})
    assert "secret" not in str(found)
    told = {one.name: one.origin for one in found}
    assert (told["store"], told["app"]) == ("DATABASE_URL", "DATABASE_URL")
    assert told["colour"] == "FORCE_COLOR"
