"""Every house rule can fail: each is shown text that it rejects, and near misses."""

import __future__

from pathlib import PurePath
from types import ModuleType

import pytest

from tests.tidy import rules

FORBIDDEN = [
    "import pickle",
    "import pickle as p",
    "from pickle import loads",
    "import marshal",
    "import shelve",
    "eval('1')",
    "exec('1')",
    "compile('1', 'f', 'eval')",
    "run = eval",
    "import builtins\nbuiltins.exec('1')",
    "__import__('os')",
    "import yaml\nyaml.load(text)",
    "from yaml import load as read",
    "import subprocess\nsubprocess.run('ls', shell=True)",
    "run('ls', shell=flag)",
    "import os\nos.system('ls')",
    "import multiprocessing.pool",
    "from concurrent.futures import ProcessPoolExecutor",
    "import concurrent.futures as cf\ncf.ProcessPoolExecutor()",
    "from concurrent import futures\nfutures.ProcessPoolExecutor()",
    "from unittest import mock",
]
ALLOWED = [
    "import re\nre.compile('x')",
    "import yaml\nyaml.safe_load(text)",
    "import subprocess\nsubprocess.run(['ls'], shell=False)",
    "from concurrent.futures import ThreadPoolExecutor",
    "def compile_machine(): ...",
    "machine.eval()",
    "import pickles",
]


@pytest.mark.parametrize("source", FORBIDDEN)
def test_a_forbidden_name_is_found(source: str) -> None:
    assert rules.forbidden_anywhere(source)


@pytest.mark.parametrize("source", ALLOWED)
def test_a_harmless_name_is_not_found(source: str) -> None:
    assert rules.forbidden_anywhere(source) == []


def test_a_finding_names_its_line() -> None:
    [found] = rules.forbidden_anywhere("x = 1\n\nimport pickle\n")
    assert found.line == 3
    assert found.message.startswith("pickle ")


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
    "from unittest.mock import Mock",
    "import unittest.mock",
]


@pytest.mark.parametrize("source", LUCK)
def test_sleeping_and_mocking_are_found_in_tests(source: str) -> None:
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


def function_of(lines: int) -> str:
    return "def grow():\n" + "    x = 1\n" * (lines - 1)


def test_long_files_and_functions_are_found() -> None:
    assert rules.too_long("x = 1\n" * (rules.FILE_LINES_MAX + 1))
    assert rules.too_long(function_of(rules.FUNCTION_LINES_MAX + 1))
    assert rules.too_long("async " + function_of(rules.FUNCTION_LINES_MAX + 1))


def test_files_and_functions_may_reach_the_limit() -> None:
    assert rules.too_long("x = 1\n" * rules.FILE_LINES_MAX) == []
    assert rules.too_long(function_of(rules.FUNCTION_LINES_MAX)) == []


def test_a_line_of_code_is_no_blank_no_comment_and_no_docstring() -> None:
    said = '"""One\n\ntwo."""\n\n# three\n'
    assert rules.code_lines(said) == 0
    assert rules.code_lines(said + 'import os\n\nx = """a\nb\n"""  # c\n') == 4
    assert rules.code_lines('def f(\n    x: int,\n) -> int:\n    """Why."""\n    return x\n') == 4


@pytest.mark.parametrize(
    "path", ["a/utils.py", "common/x.py", "_helpers.py", "manager.py", "base.py"]
)
def test_an_empty_name_is_found(path: str) -> None:
    assert rules.says_nothing(PurePath(path))


def test_a_telling_name_is_not_found() -> None:
    assert rules.says_nothing(PurePath("detent/database.py")) == []


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


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        (["Job"], "fire is public but not listed"),
        (["Job", "fire", "gone"], "gone is listed but missing"),
        (["fire", "Job"], "__all__ is not sorted"),
        (["Job", "fire", "fire"], "fire is listed twice"),
    ],
)
def test_a_wrong_list_of_public_names_is_found(declared: list[str], complaint: str) -> None:
    namespace = {"Job": 1, "fire": 2}
    assert complaint in rules.export_breaches(declared, namespace)


def test_a_private_name_of_another_module_is_found() -> None:
    source = "from __future__ import annotations\nfrom detent.host import ECHO_S, _START"
    [found] = rules.private_imports(source)
    assert (found.line, found.message) == (2, "_START is private to detent.host")


def test_what_others_made_need_not_be_listed() -> None:
    foreign = {"annotations": __future__.annotations, "PurePath": PurePath, "parametrize": pytest}
    assert rules.export_breaches([], foreign) == []


def test_what_we_made_must_be_listed_wherever_it_comes_from() -> None:
    ours = {"Job": type("Job", (), {"__module__": "detent.lifecycle.job"}), "LIMIT": 3}
    assert len(rules.export_breaches([], ours)) == 2


def test_constants_classes_and_functions_are_listed_in_that_order() -> None:
    namespace = {"MACHINES": 1, "Actor": 2, "fire": 3, "_private": 4, "job": ModuleType("job")}
    assert rules.export_breaches(["MACHINES", "Actor", "fire"], namespace) == []


@pytest.mark.parametrize("words", [("../", "shared"), ("shared/", "specs"), ("seeds", "/001")])
def test_a_mention_of_the_workshop_is_found(words: tuple[str, str]) -> None:
    [found, *_] = rules.workshop_words("first line\nsee " + "".join(words))
    assert found.line == 2


def test_the_word_shared_alone_is_no_mention() -> None:
    assert rules.workshop_words("a lock shared by two workers; random seeds") == []
