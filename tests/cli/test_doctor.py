"""`detent doctor` as an operator runs it: faults are real, exit codes and JSON a contract."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from detent import Detent, stores
from detent.engine.doctor.surroundings import event_loop, libraries, needed
from detent.engine.keyring import new_key
from detent.stores.checks import Grade
from detent.stores.sqlite.checkup import log, room
from tests.cli.commands import detent
from tests.cli.inside import Desk
from tests.fleet.yard import Yard
from tests.postgres.server import databases
from tests.sqlite.processes import url_of

MIB = 1 << 20


def looked(url: str, *more: str, **env: str) -> dict[str, Any]:
    """Every check by its name; the end of the command fits the worst of them."""
    done = detent("doctor", "--json", "--store", url, *more, **env)
    assert done.complained == ""
    checks = {one["check"]: one for one in done.data["checks"]}
    is_bad = any(one["grade"] == "bad" for one in checks.values())
    assert (done.code, done.data["ok"]) == ((1, False) if is_bad else (0, True))
    assert all(one["why"] and one["mend"] for one in checks.values() if one["grade"] != "ok")
    return checks


def wrong(url: str, *more: str) -> dict[str, str]:
    found = looked(url, *more)
    return {name: one["grade"] for name, one in found.items() if one["grade"] != "ok"}


def spoil(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for one in statements:
            connection.execute(one)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with tables."""
    stores.run_migrations(url_of(tmp_path / "detent.db"))
    return tmp_path / "detent.db"


def test_a_new_store_is_fine_on_a_laptop_and_not_in_production(desk: Desk) -> None:
    said = desk.said("doctor")
    assert "check       what was found" in said
    assert said.endswith("21 checks: all is well.\n")
    done = desk.run("doctor", "--production")
    assert done.code == 0
    assert "warn  store" in done.said
    assert "  mend: detent keys create --scope admin, before others can reach it.\n" in done.said
    assert done.said.endswith("21 checks: 0 bad, 4 warnings.\n")


def test_what_is_bad_comes_first_and_ends_with_1(desk: Desk, tmp_path: Path) -> None:
    desk.push()
    desk.said("queues", "pause", "default", "--as", "ops")
    spoil(tmp_path / "detent.db", "UPDATE detent_meta SET value = '1' WHERE name = 'min_code'")
    assert desk.run("doctor").code == 0
    (tmp_path / "detent.db").chmod(0o644)
    done = desk.run("doctor")
    assert done.code == 1
    advice = done.said.split("\n\n")[1]
    assert advice.startswith("bad  store")


def test_libraries_that_are_missing_are_named() -> None:
    assert {"msgspec", "cronsim", "typer"} <= set(needed("detent"))
    assert not {"asyncpg", "aiohttp"} & set(needed("detent")), "extras are for who asks for them"
    assert libraries(needed("detent")).grade is Grade.OK
    found = libraries(["msgspec", "no-such-package"])
    assert (found.grade, found.found) == (Grade.BAD, "missing: no-such-package")
    assert event_loop("no-such-package").graded(production=True) is Grade.WARN


def test_it_says_who_names_the_store(desk: Desk) -> None:
    assert "by DETENT_STORE" in desk.said("doctor")
    assert "by --store" in desk.said("doctor", "--store", desk.url)


def test_a_relative_address_is_for_laptops(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    assert "address" not in wrong("sqlite:detent.db")
    assert wrong("sqlite:detent.db", "--production")["address"] == "warn"


@pytest.mark.parametrize("host", ["127.0.0.1:1", "[bad", "a@b"])
def test_no_password_is_shown(host: str) -> None:
    url = f"postgresql://ada:tiger@{host}/x"
    for words in (["doctor"], ["config", "show"]):
        done = detent(*words, "--store", url)
        assert "Traceback" not in done.complained
        assert "tiger" not in done.said + done.complained


def test_an_address_that_is_none_is_told_and_not_a_traceback() -> None:
    assert "[bad_url]" in looked("mysql://x")["store"]["found"]
    assert "[bad_url]" in looked("postgresql://ada:tiger@[bad/x")["store"]["found"]
    assert "cannot be used" in looked(f"sqlite:///{'x' * 300}.db")["store"]["found"]
    assert looked("memory:")["store"]["grade"] == "ok"
    assert looked("memory:", "--production")["store"]["grade"] == "warn"


def test_where_there_is_no_file_none_is_made(tmp_path: Path) -> None:
    assert wrong(url_of(tmp_path / "none.db")) == {"store": "bad"}
    assert wrong(url_of(tmp_path / "no" / "folder.db")) == {"store": "bad"}
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_changed_by_looking(desk: Desk, tmp_path: Path) -> None:
    desk.push()
    desk.claim()
    before = _dump(tmp_path / "detent.db")
    desk.said("doctor", "--production")
    assert _dump(tmp_path / "detent.db") == before
    assert not (tmp_path / "detent.db-key").exists()


def _dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_others_may_open_the_file_or_it_is_a_link(path: Path) -> None:
    path.chmod(0o640)
    assert "chmod 600" in looked(url_of(path))["store"]["found"]
    path.chmod(0o600)
    path.with_name("link.db").symlink_to(path)
    assert "is a link" in looked(url_of(path.with_name("link.db")))["store"]["found"]


def test_tables_that_are_older_newer_or_ahead(path: Path) -> None:
    def say(version: int, min_code: int) -> None:
        told = "UPDATE detent_meta SET value = {} WHERE name = '{}'"
        spoil(path, told.format(version, "schema_version"), told.format(min_code, "min_code"))

    say(3, 1)
    assert looked(url_of(path))["tables"]["found"] == "version 3, pending: 0004_results, 0005_held"
    assert wrong(url_of(path)) == {"tables": "bad"}
    say(99, 1)
    assert wrong(url_of(path)) == {"tables": "warn"}
    say(99, 99)
    assert "[schema_ahead]" in looked(url_of(path))["tables"]["found"]


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    path.write_text("not a database" * 100, "utf-8")
    path.chmod(0o600)
    assert wrong(url_of(path)) == {"tables": "bad"}


def test_pages_that_are_damaged(desk: Desk, tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    for _ in range(3):
        desk.push(payload='{"kwargs":{"text":"' + "x" * 20_000 + '"}}')
    spoil(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        # The pages that the payloads go on in: the tables can still be read.
        file.seek(-8_192, 2)
        file.write(b"\xff" * 8_192)
    assert looked(url_of(path))["pages"]["grade"] == "bad"


def test_a_look_at_many_pages_is_broken_off(path: Path) -> None:
    spoil(
        path,
        "CREATE TABLE large AS"
        " WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n LIMIT 100000)"
        " SELECT n FROM n",
    )
    found = {one.name: one for one in asyncio.run(stores.checkup(url_of(path), within_s=0))}
    assert found["pages"].grade is Grade.OK
    assert "broken off: detent verify" in found["pages"].found


def test_a_full_disk_is_not_taken_for_damage(path: Path) -> None:
    log = path.with_name("detent.db-wal")
    log.unlink(missing_ok=True)
    # Whoever opens the file finds no place for its log.
    log.mkdir()
    found = looked(url_of(path))
    assert "restore a backup" not in found["tables"]["mend"]
    assert found["disk"]["grade"] == "ok"


def test_a_journal_that_somebody_else_has_set(path: Path) -> None:
    spoil(path, "PRAGMA journal_mode = DELETE")
    assert wrong(url_of(path)) == {"journal": "warn"}
    with closing(sqlite3.connect(path)) as connection:
        [mode] = connection.execute("PRAGMA journal_mode").fetchone()
    assert mode == "wal", "whoever opens the file sets it back, as the advice says"


def test_room_on_the_disk(path: Path) -> None:
    assert room(path, 100 * MIB).grade is Grade.BAD
    assert room(path, 900 * MIB).grade is Grade.WARN
    assert room(path, 5_000 * MIB).grade is Grade.OK


def test_a_log_that_nobody_takes_in(path: Path) -> None:
    with path.with_name("detent.db-wal").open("wb") as file:
        assert log(path).grade is Grade.OK
        file.truncate(300 * MIB)
    assert log(path).grade is Grade.WARN


def test_a_process_that_stands_still_in_its_turn_is_not_waited_for(path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom detent.stores.sqlite.turns import Turns\n"
        "with Turns(Path(sys.argv[1])):\n    print('in', flush=True)\n    sys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"in\n"
        found = looked(url_of(path))["jobs"]
        holder.stdin.close()
    assert (found["grade"], "[store_unavailable]" in found["found"]) == ("bad", True)


# --- a store that was restored without its key ----------------------------------------------------


def locked(path: Path) -> None:
    """A job with a secret, and then its key is gone."""
    with Detent(url_of(path)) as app:

        @app.job(secret=("token",))
        def pay(token: str) -> None: ...

        pay.enqueue("tok-12345")
    path.with_name(f"{path.name}-key").unlink()


def test_a_store_that_was_restored_without_its_key(path: Path) -> None:
    locked(path)
    found = looked(url_of(path))["secrets"]
    assert found["grade"] == "bad"
    assert "the key is not here" in found["found"]
    assert not path.with_name("detent.db-key").exists()


def test_a_key_file_that_others_may_read(path: Path) -> None:
    locked(path)
    key = path.with_name("detent.db-key")
    key.write_text(f"{new_key()}\n", "ascii")
    key.chmod(0o644)
    assert "[bad_secret_key]" in looked(url_of(path))["secrets"]["found"]


def test_keys_in_the_environment_that_are_none(path: Path) -> None:
    told = {"DETENT_SECRET_KEYS": "half a key"}
    found = looked(url_of(path), **told)
    assert "[bad_secret_key]" in found["secrets"]["found"]
    assert "half" not in str(found)


@pytest.mark.slow
def test_workers_that_start_without_the_key_say_so(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    locked(path)
    yard = Yard(tmp_path, url_of(path), "program.txt")
    try:
        told = yard.log(yard.start())
    finally:
        yard.close()
    assert told.count("the key is not here") == 1


# --- on a server ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_is_looked_at_as_a_whole(tmp_path: Path) -> None:
    url = databases().of(tmp_path)
    found = looked(url, "--production")
    bad = {name for name, one in found.items() if one["grade"] == "bad"}
    assert bad == {"fsync", "full_page_writes", "synchronous_commit"}
    assert found["API keys"]["grade"] == found["rights"]["grade"] == "warn"
    detent("queues", "pause", "mail", "--store", url, "--as", "ops")
    assert "queue mail by ops" in looked(url)["pauses"]["found"]
