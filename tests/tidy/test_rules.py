"""Every safety rule can fail: each is shown text that it rejects, and near misses."""

import pytest

from tests.tidy import rules

IMPURE = [
    "from datetime import datetime\ndatetime.now()",
    "import datetime as dt\ndt.datetime.utcnow()",
    "from datetime import date as day\nday.today()",
    "import time",
    "from time import monotonic",
    "import random",
    "import secrets",
    "from uuid import uuid4",
    "import os\nos.environ['HOME']",
    "from os import environ",
    "open('file')",
    "print('hello')",
    "import logging",
]
PURE = [
    "from datetime import datetime, timedelta\nlater = at + timedelta(seconds=1)",
    "from datetime import datetime, timezone\ndatetime.fromtimestamp(0, timezone.utc)",
    "door.open()",
    "def due(now: int, time: int) -> bool:\n    return time <= now",
]


@pytest.mark.parametrize("source", IMPURE)
def test_an_impure_name_is_found(source: str) -> None:
    assert rules.forbidden_in_pure(source)


@pytest.mark.parametrize("source", PURE)
def test_a_pure_name_is_not_found(source: str) -> None:
    assert rules.forbidden_in_pure(source) == []


LUCK = [
    "import time\ntime.sleep(1)",
    "from time import sleep",
    "import asyncio\nasyncio.sleep(0.1)",
    "from asyncio import sleep as nap\nnap(delay)",
    "import asyncio\nasyncio.sleep(delay=1)",
]


@pytest.mark.parametrize("source", LUCK)
def test_sleeping_is_found_in_tests(source: str) -> None:
    assert rules.forbidden_in_tests(source)


@pytest.mark.parametrize("source", ["import asyncio\nasyncio.sleep(0)", "import time\ntime.time()"])
def test_yielding_to_the_loop_is_no_sleep(source: str) -> None:
    assert rules.forbidden_in_tests(source) == []


ASSEMBLED = [
    "f'SELECT * FROM {table}'",
    "f'select {columns} from job'",
    "f'''\n  update {table}\n  set state = 1'''",
    "'SELECT id FROM ' + table",
    "'INSERT INTO ' + table + ' VALUES (1)'",
    "'DELETE FROM %s' % table",
    "'DELETE FROM job WHERE id = %s' % (job_id,)",
    "'CREATE TABLE {}'.format(name)",
    "'SELECT {c} FROM job'.format_map(names)",
    "'SELECT x FROM job WHERE id IN (?)'.replace('?', marks)",
    "sql += ' WHERE id = ' + job_id",
    "f'DROP TABLE {name}'",
    "f'ALTER TABLE {name} ADD x INT'",
    "f'CREATE UNIQUE INDEX {name} ON job (id)'",
]
NOT_ASSEMBLED = [
    "'SELECT * FROM job WHERE id = ?'",
    "('SELECT * '\n 'FROM job')",
    "'SELECT * ' + 'FROM job WHERE id = ? ' + 'AND queue = ?'",
    "f'job {job_id} cannot move from {source} to {target}'",
    "f'nothing to select and nothing from {source}'",
    "'%s of %s' % (done, total)",
    "'{} set'.format(name)",
]


@pytest.mark.parametrize("source", ASSEMBLED)
def test_assembled_sql_is_found(source: str) -> None:
    assert rules.assembled_sql(source)


@pytest.mark.parametrize("source", NOT_ASSEMBLED)
def test_plain_sql_and_plain_english_are_not_found(source: str) -> None:
    assert rules.assembled_sql(source) == []


UNKNOWN_STATES = [
    "SELECT id FROM job WHERE state = 'lost'",
    "SELECT id FROM job WHERE j.state <> 'lost'",
    "SELECT id FROM job WHERE 'lost' = state",
    "UPDATE job SET \"state\" = 'lost'",
    "CHECK (state IN ('open', 'lost'))",
    "CHECK (source NOT IN ('open',\n 'lost'))",
    "WHERE state = ANY (ARRAY['open', 'lost'])",
    "WHERE state::text = 'lost'",
    "state TEXT NOT NULL DEFAULT 'lost'",
    "CASE state WHEN 'open' THEN 1 WHEN 'lost' THEN 2 END",
    "case target when 'lost' then 'x' end",
    "CHECK ((source, event, target) IN (('open', 'end', 'done'), ('open', 'end', 'lost')))",
    "(e.source, e.target) NOT IN (VALUES ('lost', 'done'))",
]
KNOWN_STATES = [
    "SELECT id FROM job WHERE state = 'open' OR state IN ('open', 'done')",
    "SELECT id FROM job WHERE queue = 'lost'",
    "-- state = 'lost'\n/* state = 'lost' */ SELECT 1",
    "CHECK ((source, event, target) IN (('open', 'lost', 'done')))",
    "CASE state WHEN 'open' THEN 'ready' END",
    "INSERT INTO job (state) VALUES (?)",
]


@pytest.mark.parametrize("sql", UNKNOWN_STATES)
def test_a_state_that_no_machine_declares_is_found(sql: str) -> None:
    assert [
        f.message for f in rules.unknown_states(sql, {"open", "done", ""}) if "lost" in f.message
    ]


@pytest.mark.parametrize("sql", KNOWN_STATES)
def test_declared_states_and_other_words_are_not_found(sql: str) -> None:
    assert rules.unknown_states(sql, {"open", "done"}) == []


def test_an_unknown_state_is_reported_with_its_line() -> None:
    [found] = rules.unknown_states(
        "/* a\n b */\nSELECT 1\nWHERE state IN ('open',\n'lost')", {"open"}
    )
    assert found.line == 5


@pytest.mark.parametrize("words", [("../", "shared"), ("shared/", "specs"), ("seeds", "/001")])
def test_a_mention_of_the_workshop_is_found(words: tuple[str, str]) -> None:
    [found, *_] = rules.workshop_words("first line\nsee " + "".join(words))
    assert found.line == 2


def test_the_word_shared_alone_is_no_mention() -> None:
    assert rules.workshop_words("a lock shared by two workers; random seeds") == []
