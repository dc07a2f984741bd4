"""`detent jobs` as people and programs use it, on a real file."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from detent import Detent, stores
from detent.cli.places import need_tables, os_user
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.errors import SchemaBehind
from detent.lifecycle import job as j
from detent.lifecycle.retry import ErrorInfo, RetryPolicy
from detent.stores.api import Failure, Line, Note, Stored, key_of
from tests.cli.commands import detent
from tests.cli.inside import WORKER, Desk

HOUR = 3_600_000_000


def finish(desk: Desk, taken: Stored, *lines: str) -> None:
    """The job is completed, with these lines in its log."""

    async def work(engine: Engine) -> None:
        now = engine.store.now()
        note = Note(now, 1, 50, "half way")
        await engine.store.note([(key_of(taken.job), taken.job.lease or "", note)], now=now)
        beside = Beside(result='{"sent": 1}', lines=tuple(Line(now, text) for text in lines))
        done = j.Complete(lease=taken.job.lease)
        await engine.carry_out([Change(key_of(taken.job), done, WORKER, beside=beside)])

    desk.do(work)


def spoil(desk: Desk, taken: Stored) -> None:
    """The job fails for good."""

    async def work(engine: Engine) -> None:
        failure = Failure(1, engine.store.now(), "boom", "it broke")
        told: dict[str, Any] = {"beside": Beside(failure=failure), "error": ErrorInfo("boom")}
        failed = j.Fail(lease=taken.job.lease, code="boom")
        await engine.carry_out([Change(key_of(taken.job), failed, WORKER, **told)])

    desk.do(work)


# --- list -----------------------------------------------------------------------------------------


def test_an_empty_store_has_no_jobs(desk: Desk) -> None:
    assert desk.said("jobs", "list") == "There are no such jobs.\n"
    assert desk.data("jobs", "list") == {"jobs": [], "after": None}


def test_jobs_are_listed_newest_first_and_page_by_page(desk: Desk) -> None:
    ids = [desk.push(queue="mail") for _ in range(5)][::-1]
    first = desk.data("jobs", "list", "--limit", "3")
    assert [one["id"] for one in first["jobs"]] == ids[:3]
    assert first["after"] == ids[2]
    rest = desk.data("jobs", "list", "--limit", "3", "--after", first["after"])
    assert ([one["id"] for one in rest["jobs"]], rest["after"]) == (ids[3:], None)
    said = desk.said("jobs", "list", "--limit", "3").splitlines()
    assert said[0].split() == ["id", "type", "state", "queue", "attempt", "for", "why"]
    assert said[1].split()[:5] == [ids[0], "mail.send", "available", "mail", "0"]
    assert said[-1] == f"There are more: --after {ids[2]}"


def test_jobs_are_chosen_by_everything_they_have(desk: Desk) -> None:
    told: dict[str, Any] = {"type": "report", "queue": "slow", "tags": ("x",), "key": "acme"}
    wanted = desk.push(**told)
    desk.push()
    desk.push(tenant="other", **told)
    chosen = (("--type", "report"), ("--queue", "slow"), ("--tag", "x"), ("--key", "acme"))
    for option in chosen:
        assert [one["id"] for one in desk.data("jobs", "list", *option)["jobs"]] == [wanted]
    assert desk.data("jobs", "list", "--state", "active")["jobs"] == []
    assert desk.data("jobs", "list", "--workflow", "w")["jobs"] == []
    assert len(desk.data("jobs", "list", "--tenant", "other")["jobs"]) == 1


# --- show, history, logs, why ---------------------------------------------------------------------


def test_a_job_tells_its_story(desk: Desk) -> None:
    job = desk.push(payload='{"to": "a\\u001b[31m"}', meta='{"a":1}', tags=("x", "y"))
    [taken] = desk.claim().jobs
    finish(desk, taken, "sent")
    said = desk.said("jobs", "show", job)
    assert said.startswith("Completed on attempt 1; ")
    for words in ("tags      x, y", "progress  50 % half way", 'result    {"sent": 1}'):
        assert words in said
    rows = [line.split() for line in said.splitlines()]
    assert [row[0] for row in rows[-3:]] == ["available", "active", "completed"]
    data = desk.data("jobs", "show", job)
    assert (data["state"], data["result"], data["meta"]) == ("completed", {"sent": 1}, {"a": 1})
    assert data["progress"] == {"percent": 50, "text": "half way"}
    assert [one["entered_by"] for one in data["stays"]] == ["enqueue", "claim", "complete"]


def test_a_failed_job_shows_its_errors(desk: Desk) -> None:
    job = desk.push(retry=RetryPolicy(max_attempts=1))
    [taken] = desk.claim().jobs
    spoil(desk, taken)
    assert "errors    attempt 1: boom it broke" in desk.said("jobs", "show", job)
    [error] = desk.data("jobs", "show", job)["errors"]
    assert (error["code"], error["message"]) == ("boom", "it broke")
    assert "(exhausted). [boom] it broke" in desk.said("jobs", "why", job)
    assert desk.data("jobs", "why", job)["ending"]["cause"] == "exhausted"


def test_a_failed_job_shows_where_it_went_wrong(tmp_path: Path) -> None:
    with Detent(f"sqlite:{tmp_path}/shop.db") as app:

        @app.job
        def ship() -> None:
            raise ValueError("no \u202e address\u200b\nstate  completed")

        handle = ship.enqueue()
        app.drain()
        handle.run_now("now")
        app.drain()
    said = detent("jobs", "show", handle.id, "--store", f"sqlite:{tmp_path}/shop.db").said
    wrong = r"handler_error ValueError: no \\u202e address\\u200b\\nstate  completed\n"
    assert re.search(rf"\nerrors +attempt 1: {wrong} +attempt 2: {wrong}", said)
    told = said.partition("\nThe traceback of attempt 2:\n")[2]
    assert told.startswith("  Traceback (most recent call last):\n")
    # Set in, it cannot be taken for a line of ours.
    assert told.endswith("\n  ValueError: no \\u202e address\\u200b\n  state  completed\n")


def test_what_is_not_seen_is_written_out(desk: Desk) -> None:
    job = desk.push(type="a\u200bb")
    for words in (("jobs", "list"), ("jobs", "show", job), ("events", "--since", "0")):
        said = desk.said(*words)
        assert "\u200b" not in said
    assert r"a\u200bb" in desk.said("jobs", "show", job)
    desk.said("jobs", "hold", job, "--as", "ada\u2060\n7  completed")
    history = desk.said("events", "--since", "0")
    assert r"user ada\u2060\n7  completed" in history
    done = desk.run("workers", "kill", "w\ufeff1")
    assert "\ufeff" not in done.complained


def test_a_history_says_when_what_who_and_why(desk: Desk) -> None:
    job = desk.push()
    desk.said("jobs", "hold", job, "--as", "grace", "--reason", "let me look")
    events = desk.data("jobs", "history", job)["events"]
    assert [(one["event"], one["from"], one["to"]) for one in events] == [
        ("enqueue", None, "available"),
        ("held", "available", None),
    ]
    assert (events[1]["actor_id"], events[1]["reason"]) == ("grace", "let me look")
    last = desk.said("jobs", "history", job).splitlines()[-1]
    assert last.split()[-6:] == ["available", "user", "grace", "let", "me", "look"]


def test_a_log_is_printed_line_by_line_and_harms_no_terminal(desk: Desk) -> None:
    job = desk.push()
    [taken] = desk.claim().jobs
    finish(desk, taken, "first", "a \x1b[31mred\x07 line")
    lines = desk.said("jobs", "logs", job).splitlines()
    assert [line.split("info")[1].strip() for line in lines] == [
        "first",
        "a \\x1b[31mred\\x07 line",
    ]
    followed = desk.run("jobs", "logs", job, "--follow", "--json").said.splitlines()
    assert [json.loads(line)["text"] for line in followed] == ["first", "a \x1b[31mred\x07 line"]


def test_why_lists_every_hurdle(desk: Desk) -> None:
    job = desk.push(queue="mail")
    desk.said("queues", "pause", "mail", "--as", "grace", "-r", "provider down")
    said = desk.said("jobs", "why", job)
    assert said.startswith("Its queue mail was paused by grace at ")
    assert "NO  queue" in said
    assert said.endswith("May start: nobody can say when\n")
    data = desk.data("jobs", "why", job)
    verdicts = {one["name"]: one["verdict"] for one in data["hurdles"]}
    assert (verdicts["queue"], verdicts["held"], data["waiting"]) == ("fail", "pass", True)


def test_why_names_the_holder_of_a_running_job(desk: Desk) -> None:
    job = desk.push()
    desk.claim()
    assert desk.said("jobs", "why", job).startswith("w1 runs it for ")
    assert desk.data("jobs", "why", job)["holding"]["holder"] == "w1"


@pytest.mark.parametrize("verb", ["show", "history", "logs", "why"])
def test_a_job_that_is_not_there_ends_with_1(desk: Desk, verb: str) -> None:
    done = desk.run("jobs", verb, "nowhere")
    assert (done.code, done.said) == (1, "")
    assert done.complained.endswith("[unknown_job].")


@pytest.mark.parametrize("verb", ["show", "history", "logs", "why"])
def test_the_beginning_of_an_id_is_enough_if_only_one_begins_so(desk: Desk, verb: str) -> None:
    job = desk.push(id="01999999-aaaa-7000-8000-000000000001")
    done = desk.run("jobs", verb, job[:8], "--json")
    assert (done.code, done.complained) == (0, "")
    assert verb == "logs" or done.data["id"] == job
    assert desk.run("jobs", verb, job[:7]).complained.endswith("[unknown_job].")
    other = desk.push(id="01999999-bbbb-7000-8000-000000000001")
    done = desk.run("jobs", verb, job[:8])
    assert (done.code, done.said) == (2, "")
    assert job in done.complained
    assert other in done.complained
    assert done.complained.endswith("[ambiguous_id].")


# --- acting ---------------------------------------------------------------------------------------


def test_whoever_acts_on_a_beginning_is_told_on_whom_and_never_acts_on_another(desk: Desk) -> None:
    job = desk.push(id="01999999-aaaa-7000-8000-000000000001")
    [told] = desk.data("jobs", "cancel", job[:8])["jobs"]
    assert (told["id"], told["answer"]) == (job, "accepted")
    assert desk.data("jobs", "rerun", job[:8], "-r", "mended")["jobs"][0]["id"] == job
    other = desk.push(id="01999999-bbbb-7000-8000-000000000001")
    whole = desk.push()
    done = desk.run("jobs", "cancel", whole, job[:8])
    assert (done.code, "[ambiguous_id]" in done.complained) == (2, True)
    states = [desk.data("jobs", "show", one)["state"] for one in (whole, other)]
    assert states == ["available", "available"]


def test_each_verb_does_what_it_says(desk: Desk) -> None:
    now = desk.do(_now)
    job = desk.push(run_at=now + HOUR)
    steps: list[tuple[list[str], str, Any]] = [
        (["hold"], "held", True),
        (["release"], "held", False),
        (["priority", "--to", "7"], "priority", 7),
        (["move", "--to", "slow"], "queue", "slow"),
        (["run-now"], "state", "available"),
        (["cancel"], "state", "cancelled"),
    ]
    for verb, field, expected in steps:
        [told] = desk.data("jobs", *verb, job)["jobs"]
        assert (told["id"], told["answer"]) == (job, "accepted")
        assert desk.data("jobs", "show", job)[field] == expected
    who = {one["actor_id"] for one in desk.data("jobs", "history", job)["events"]}
    assert who == {"ada", "settle", os_user()}


async def _now(engine: Engine) -> int:
    return engine.store.now()


def test_a_rerun_needs_a_reason_and_makes_a_new_job(desk: Desk) -> None:
    job = desk.push(payload="[1]")
    refused = desk.run("jobs", "rerun", job, "-r", "x")
    assert refused.code == 1
    assert "it has not ended" in refused.said
    desk.said("jobs", "cancel", job)
    assert "say why" in desk.run("jobs", "rerun", job).complained
    [told] = desk.data("jobs", "rerun", job, "--reason", "mended")["jobs"]
    new = desk.data("jobs", "show", told["new_id"])
    assert (new["rerun_of"], new["payload"], new["state"]) == (job, [1], "available")


def test_what_is_refused_ends_with_1_and_says_why(desk: Desk) -> None:
    one, two = desk.push(), desk.push()
    desk.said("jobs", "cancel", one)
    done = desk.run("jobs", "cancel", one, two, "nowhere", "--json")
    assert done.code == 1
    assert [(x["answer"], x.get("code")) for x in done.data["jobs"]] == [
        ("refused", "final"),
        ("accepted", None),
        ("refused", "unknown_job"),
    ]
    assert done.data["jobs"][2]["message"].startswith("there is no job nowhere")
    again = desk.said("jobs", "hold", desk.push())
    assert "accepted" in again


def test_many_jobs_are_changed_after_a_dry_run_only_by_yes(desk: Desk) -> None:
    jobs = [desk.push(tags=("x",)) for _ in range(3)]
    desk.said("jobs", "cancel", jobs[0])
    said = desk.said("jobs", "cancel", "--tag", "x", "--dry-run")
    assert said.splitlines() == [
        "accepted   2",
        "unchanged  0",
        f"refused    1  final, such as {jobs[0]}",
        "3 jobs looked at. Nothing was changed: --yes does it.",
    ]
    assert len(desk.data("jobs", "list", "--state", "available")["jobs"]) == 2
    done = desk.run("jobs", "cancel", "--tag", "x", "--yes", "-r", "all of it", "--json")
    assert (done.code, done.data["effects"]["accepted"]) == (1, 2)
    assert desk.run("jobs", "cancel", "--state", "available", "--yes").code == 0
    assert desk.data("jobs", "list", "--state", "available")["jobs"] == []


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["cancel"], "say which jobs"),
        (["cancel", "a", "--state", "active"], "say which jobs"),
        (["cancel", "--state", "active"], "say --dry-run, then --yes"),
        (["cancel", "--state", "active", "--dry-run", "--yes"], "say --dry-run, then --yes"),
        (["cancel", "a", "--dry-run"], "meant by options"),
        (["list", "--state", "sleeping"], "sleeping"),
        (["list", "--limit", "0"], "limit"),
        (["move", "a"], "--to"),
    ],
)
def test_a_wrong_command_line_ends_with_2(desk: Desk, args: list[str], complaint: str) -> None:
    done = desk.run("jobs", *args)
    assert (done.code, done.said) == (2, "")
    assert complaint in done.complained


def test_a_store_that_is_not_there_is_not_made(desk: Desk) -> None:
    path = desk.url.replace("detent.db", "other.db")
    done = desk.run("jobs", "list", "--store", path)
    assert done.code == 2
    assert done.complained.endswith("[schema_behind].")
    assert "a program makes one when it first enqueues" in done.complained
    assert desk.run("jobs", "list", "--store", "nosuch:").complained.endswith("[bad_url].")
    assert desk.run("jobs", "list", "--store", path).code == 2


def test_the_first_variable_that_is_set_names_the_store(desk: Desk) -> None:
    desk.push()
    named = {"DETENT_STORE": "", "DETENT_URL": desk.url, "DATABASE_URL": "nosuch:"}
    assert len(json.loads(desk.run("jobs", "list", "--json", **named).said)["jobs"]) == 1
    named = {"DETENT_STORE": "", "DETENT_URL": "", "DATABASE_URL": desk.url}
    assert len(json.loads(desk.run("jobs", "list", "--json", **named).said)["jobs"]) == 1


def test_a_process_of_its_own_says_the_same(desk: Desk) -> None:
    job = desk.push()
    done = detent("jobs", "list", "--json", "--store", desk.url)
    assert (done.code, done.complained) == (0, "")
    assert done.data["jobs"][0]["id"] == job


def test_a_store_that_is_older_than_the_code_is_no_missing_one(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/old.db"
    stores.run_migrations(url)
    with sqlite3.connect(tmp_path / "old.db") as file:
        file.execute(
            "UPDATE detent_meta SET value = '1' WHERE name IN ('schema_version', 'min_code')"
        )
    with pytest.raises(SchemaBehind, match="older than this code") as caught:
        need_tables(url)
    assert "There is no store" not in str(caught.value)
