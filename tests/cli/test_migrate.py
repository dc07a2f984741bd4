"""`detent migrate`: what is pending, what it would run, and that it is run once."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from detent.stores.sqlite.migrate import KNOWN
from detent.stores.sqlite.statements import MIGRATIONS
from tests.cli.commands import detent
from tests.sqlite.processes import ROOT, url_of
from tests.sqlite.test_migrate import meta


def schema_of(path: Path) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2").fetchall()
    connection.close()
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that does not exist yet."""
    return tmp_path / "detent.db"


def test_a_check_says_what_is_pending_and_changes_nothing(path: Path) -> None:
    code, said, complained = detent("migrate", "--store", url_of(path), "--check")
    assert (code, complained) == (1, "")
    assert said.startswith("pending  0001_first")
    assert list(path.parent.iterdir()) == []


def test_what_is_pending_is_applied_once(path: Path) -> None:
    first = detent("migrate", "--store", url_of(path))
    assert (first.code, first.said.split()[:2]) == (0, ["applied", "0001_first"])
    again = detent("migrate", "--store", url_of(path))
    assert (again.code, again.said) == (0, "The tables are up to date.\n")
    assert detent("migrate", "--store", url_of(path), "--check").code == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert detent("verify", "--store", url_of(path)).code == 0


def test_the_printed_sql_makes_exactly_what_migrating_makes(path: Path) -> None:
    printed = detent("migrate", "--store", url_of(path), "--sql")
    assert printed.code == 0
    assert list(path.parent.iterdir()) == []
    by_hand = path.with_name("by-hand.db")
    by_hand.touch(0o600)
    connection = sqlite3.connect(by_hand)
    connection.executescript(printed.said)
    connection.close()
    detent("migrate", "--store", url_of(path))
    assert schema_of(by_hand) == schema_of(path)
    assert meta(by_hand).keys() == meta(path).keys()
    assert detent("migrate", "--store", url_of(by_hand), "--check").code == 0
    assert detent("verify", "--store", url_of(by_hand)).code == 0


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="there is no sqlite3 shell here")
def test_the_printed_sql_runs_in_the_shell(path: Path) -> None:
    printed = detent("migrate", "--store", url_of(path), "--sql").said
    path.touch(0o600)
    shell = ["sqlite3", "-bail", str(path)]
    done = subprocess.run(shell, input=printed, capture_output=True, text=True, check=False)  # noqa: S603
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert detent("migrate", "--store", url_of(path), "--check").code == 0
    nothing = detent("migrate", "--store", url_of(path), "--sql").said
    assert nothing == "-- The tables are up to date: there is nothing to run.\n"


def test_the_answer_can_be_read_by_a_program(path: Path) -> None:
    known = [
        {"version": one.version, "name": one.name, "min_code": one.min_code} for one in MIGRATIONS
    ]
    checked = detent("migrate", "--store", url_of(path), "--check", "--json")
    assert (checked.code, checked.data) == (1, {"pending": known})
    planned = detent("migrate", "--store", url_of(path), "--sql", "--json").data["pending"]
    assert [{**one, "sql": ""} for one in planned] == [{**one, "sql": ""} for one in known]
    assert detent("migrate", "--store", url_of(path), "--json").data == {"applied": known}
    assert detent("migrate", "--store", url_of(path), "--json").data == {"applied": []}


def test_of_many_at_once_one_does_it(path: Path) -> None:
    command = [sys.executable, "-m", "detent", "migrate", "--store", url_of(path)]
    running = [
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603
        for _ in range(6)
    ]
    said = [one.communicate(timeout=60)[0] for one in running]
    assert [one.returncode for one in running] == [0] * 6
    assert sorted(said) == [
        *["The tables are up to date.\n"] * 5,
        "".join(f"applied  {x.file}  (needs code {x.min_code} or newer)\n" for x in MIGRATIONS),
    ]


@pytest.mark.parametrize("asked", [(), ("--check",), ("--sql",)])
def test_tables_that_no_longer_admit_this_code_end_with_2(
    path: Path, asked: tuple[str, ...]
) -> None:
    detent("migrate", "--store", url_of(path))
    meta(path, schema_version=KNOWN + 2, min_code=KNOWN + 1)
    code, said, complained = detent("migrate", "--store", url_of(path), *asked)
    assert (code, said) == (2, "")
    assert complained.endswith("update Detent [schema_ahead].")
    assert detent("verify", "--store", url_of(path)).code == 2


def test_newer_tables_that_still_admit_this_code_are_up_to_date(path: Path) -> None:
    detent("migrate", "--store", url_of(path))
    meta(path, schema_version=KNOWN + 1, min_code=KNOWN)
    assert detent("migrate", "--store", url_of(path), "--check").code == 0
    assert detent("migrate", "--store", url_of(path)).code == 0
    assert meta(path)["schema_version"] == str(KNOWN + 1)
    assert detent("verify", "--store", url_of(path)).code == 0


def test_a_store_without_tables_has_nothing_to_migrate() -> None:
    assert detent("migrate", "--store", "memory:", "--check").code == 0
    assert detent("migrate", "--store", "memory:").said == "The tables are up to date.\n"
    assert detent("migrate", "--store", "memory:x").code == 2


def test_two_wishes_that_contradict_each_other_end_with_2(path: Path) -> None:
    code, said, complained = detent("migrate", "--store", url_of(path), "--check", "--sql")
    assert (code, said) == (2, "")
    assert "contradicts" in complained


def test_a_file_that_may_not_be_opened_ends_with_2(path: Path) -> None:
    path.mkdir()
    code, _, complained = detent("migrate", "--store", url_of(path))
    assert code == 2
    assert complained.startswith("Error: ")
    assert complained.endswith("].")
