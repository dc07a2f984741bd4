"""Each rule of the worker contract has a test that names it, or is left out for a reason."""

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
# Rules that were decided against; docs/adr/0072 says why.
LEFT_OUT = {
    "W-86": "a periodic check that sends topics: a probe asks the worker instead",
    "W-104": "shielded sections: `asyncio.shield` and an awaited task do that",
    "W-105": "sources of topics: call the methods of the supervisor",
    "W-106": "the router that matches topics to handlers",
    "W-107": "middleware around handlers of topics",
    "W-108": "standard topics such as lifecycle/suspend",
    "W-109": "the escalator and the interactive preset for Ctrl-C",
    "W-110": "once, debounce, the bridge to a queue, and the webhook source",
    "W-111": "introspection of the router",
    "behaviour 20": "what the router does",
}
# Of three rules only a part is left out: pause tokens (W-36), the reset of the signal count by a
# handler (W-97), and the log provider and the label policy for metrics (W-112, W-113).
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
    assert [rule for rule in wanted if not table[rule] and rule not in LEFT_OUT] == []
    assert [rule for rule in LEFT_OUT if table[rule]] == []


def test_a_rule_without_a_test_is_seen() -> None:
    assert named("W-13 to W-15, W-110: as behaviours 1, 3 and 5 say.") == {
        *("W-13", "W-14", "W-15", "W-110"),
        *("behaviour 1", "behaviour 3", "behaviour 5"),
    }
