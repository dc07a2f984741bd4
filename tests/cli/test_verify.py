"""`detent verify` as an operator runs it: exit codes are a contract, and so is the JSON."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from detent.app.connection import DEFAULT_URL, STORE_NAMES
from detent.app.connection import url_of as url_of_app
from detent.cli.application import application_of
from tests.cli.commands import detent
from tests.cli.test_lifecycle import CLEAN, read_to_the_end
from tests.engine import flow_damage
from tests.engine.damage import DAMAGES, fill, plant
from tests.sqlite.processes import url_of


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which nothing is wrong."""
    path = tmp_path_factory.mktemp("verify") / "sound.db"
    fill(path)
    return path


@pytest.fixture
def damaged(sound: Path, tmp_path: Path) -> Path:
    """A file in which two records, a seal and a count are wrong."""
    path = Path(shutil.copy(sound, tmp_path / "damaged.db"))
    names = ("a counter of the record", "the queue of the record", "the root of a block")
    for name in (*names, "a count that is too high"):
        plant(path, DAMAGES[name])
    return path


def test_a_sound_store_ends_with_0_and_says_how_much_was_seen(sound: Path) -> None:
    code, said, complained = detent("verify", "--store", url_of(sound))
    assert (code, complained) == (0, "")
    first, second = said.splitlines()
    assert first == "31 jobs, 39 events, 8 blocks: all is well."
    assert second.startswith("Sealed up to head ")
    assert len(second.split()[-1]) == 64


def test_workflows_and_what_retention_has_taken_are_told(tmp_path: Path) -> None:
    flow_damage.fill(tmp_path / "flows.db")
    code, said, _ = detent("verify", "--store", url_of(tmp_path / "flows.db"))
    assert (code, said.splitlines()[0]) == (
        *(0, "8 jobs and 2 workflows, 28 events and 9 forgotten, 7 blocks: all is well."),
    )


def test_a_damaged_store_ends_with_1_and_names_the_first_offender(damaged: Path) -> None:
    code, said, complained = detent("verify", "--store", url_of(damaged))
    assert (code, complained) == (1, "")
    assert said.splitlines()[:2] == [
        "done version 3: the record differs in attempt",
        "  look: await store.history(('', 'done')), await store.get([('', 'done')])",
    ]
    assert "waits-07" not in said


def test_as_many_offenders_are_named_as_were_asked_for(damaged: Path) -> None:
    two = detent("verify", "--store", url_of(damaged), "--limit-offenders", "2", "--json")
    assert [one["id"] for one in two.data["offenders"]] == ["done", "waits-07"]
    many = detent("verify", "--store", url_of(damaged), "--limit-offenders", "99", "--json")
    assert [one["check"] for one in many.data["offenders"]] == [
        *("history", "history"),
        *("seal", "seal"),
        "count",
    ]


def test_the_answer_can_be_read_by_a_program(sound: Path, damaged: Path) -> None:
    good = detent("verify", "--store", url_of(sound), "--json")
    assert good.code == 0
    assert set(good.data) == {"ok", "checked", "offenders"}
    assert (good.data["ok"], good.data["offenders"]) == (True, [])
    assert set(good.data["checked"]) == {
        *("end", "records", "workflows", "workers", "events", "fed", "forgotten", "blocks", "head"),
    }
    bad = detent("verify", "--store", url_of(damaged), "--json")
    assert bad.code == 1
    assert bad.data["ok"] is False
    assert bad.data["offenders"] == [
        {
            "check": "history",
            "tenant": "",
            "id": "done",
            "version": 3,
            "position": None,
            "block": None,
            "why": "the record differs in attempt",
            "look": "await store.history(('', 'done')), await store.get([('', 'done')])",
        }
    ]


def test_one_tenant_can_be_asked_about(damaged: Path) -> None:
    asked = ("verify", "--store", url_of(damaged), "--json", "--tenant", "t")
    [offender] = detent(*asked).data["offenders"]
    assert (offender["tenant"], offender["id"]) == ("t", "waits-07")


def test_a_store_that_does_not_exist_is_not_made_and_not_well(tmp_path: Path) -> None:
    code, said, complained = detent("verify", "--store", url_of(tmp_path / "typo.db"))
    assert (code, said) == (2, "")
    assert "nothing to verify" in complained
    assert complained.endswith("[schema_behind].")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("nosql:x", "bad_url"),
        ("sqlite://host/x", "bad_url"),
        ("memory:x", "bad_url"),
        ("", "bad_url"),
    ],
)
def test_an_address_that_is_none_ends_with_2(url: str, code: str) -> None:
    ended, said, complained = detent("verify", "--store", url)
    assert (ended, said) == (2, "")
    assert complained.endswith(f"[{code}].")


def test_a_file_that_is_no_database_ends_with_2(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    path.chmod(0o600)
    code, said, complained = detent("verify", "--store", url_of(path))
    assert (code, said) == (2, "")
    assert complained.endswith("[store_corrupt].")


def test_a_place_that_is_no_file_ends_with_2(tmp_path: Path) -> None:
    code, said, complained = detent("verify", "--store", url_of(tmp_path))
    assert (code, said) == (2, "")
    assert complained.startswith("Error: ")


@pytest.mark.parametrize("args", [("--store",), ("--store", "memory:", "--limit-offenders", "0")])
def test_a_command_line_that_makes_no_sense_ends_with_2(args: tuple[str, ...]) -> None:
    code, said, complained = detent("verify", *args)
    assert (code, said) == (2, "")
    assert "--store" in complained or "--limit-offenders" in complained


def test_without_a_word_it_is_the_store_of_a_program_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in STORE_NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    run = CliRunner(env={"NO_COLOR": "1"}).invoke
    assert run(application_of(pretty=False), ["verify"]).exit_code == 2
    assert run(application_of(pretty=False), ["migrate"]).exit_code == 0
    assert (tmp_path / "detent.db").exists()
    assert run(application_of(pretty=False), ["verify"]).exit_code == 0


def test_programs_and_commands_go_by_the_same_names() -> None:
    told = {"DETENT_STORE": "memory:", "DETENT_URL": "b", "DATABASE_URL": "c"}
    assert url_of_app(None, told) == "memory:"
    assert url_of_app(None, {**told, "DETENT_STORE": ""}) == "b"
    assert url_of_app("given", told) == "given"
    assert url_of_app(None, {}) == DEFAULT_URL


def test_the_address_may_come_from_the_environment() -> None:
    assert detent("verify", DETENT_STORE="memory:").code == 0


def test_only_a_terminal_is_shown_a_bar(sound: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "detent", "verify", "--store", url_of(sound)]
    told = {**CLEAN, "TERM": "xterm-256color", "COLUMNS": "72"}
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=subprocess.PIPE, stderr=theirs, env=told, text=True
    ) as running:
        os.close(theirs)
        sent = read_to_the_end(ours)
        assert running.stdout is not None
        said = running.stdout.read()
    assert "31 jobs" in sent
    assert "━" in sent
    assert "\x1b" not in said
    assert running.returncode == 0
