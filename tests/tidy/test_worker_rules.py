"""Every rule of the worker contract is named by a test that shows it; this is the table of them."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ROOMS = ("lifecycle", "runtime", "fleet")
RULES = 119
BEHAVIOURS = 23
_RULE = re.compile(r"W-(\d+)(?: to W-(\d+))?")
_BEHAVIOURS = re.compile(r"[Bb]ehaviours? ((?:\d+(?:, | and )?)+)")


def named(text: str) -> set[str]:
    """The rules and behaviours that a docstring names; a range names all of it."""
    found = set()
    for first, last in _RULE.findall(text):
        found |= {f"W-{number:02}" for number in range(int(first), int(last or first) + 1)}
    for some in _BEHAVIOURS.findall(text):
        found |= {f"behaviour {number}" for number in re.findall(r"\d+", some)}
    return found


def _tests_of(path: Path) -> Iterator[tuple[str, str]]:
    """The tests in a file, each with what it says about itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("test_"):
            yield f"{path.name}::{node.name}", ast.get_docstring(node) or ""


@pytest.fixture(scope="module")
def table() -> dict[str, list[str]]:
    """From each rule to the tests that name it."""
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for room in ROOMS:
        for path in sorted((TESTS / room).rglob("test_*.py")):
            for test, text in _tests_of(path):
                for rule in named(text):
                    rows[rule].append(test)
    return rows


def test_every_rule_has_a_test(table: dict[str, list[str]]) -> None:
    wanted = [f"W-{number:02}" for number in range(1, RULES + 1)]
    wanted += [f"behaviour {number}" for number in range(1, BEHAVIOURS + 1)]
    assert [rule for rule in wanted if not table[rule]] == []


def test_a_rule_without_a_test_is_seen() -> None:
    assert named("W-13 to W-15, W-110: as behaviours 1, 3 and 5 say.") == {
        *("W-13", "W-14", "W-15", "W-110"),
        *("behaviour 1", "behaviour 3", "behaviour 5"),
    }
