"""The safety rules that ruff and import-linter cannot express, as functions from text to findings.

`test_tree.py` applies them to the tree, and `test_rules.py` shows for each of them text that it
rejects.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tests.tidy.references import calls, references


@dataclass(frozen=True, order=True)
class Finding:
    """One breach of a rule: where, and what is wrong with it."""

    line: int
    message: str


# --- forbidden names ------------------------------------------------------------------------

_CLOCK = "reads a clock; `now` is an argument"
_CHANCE = "is chance; ids and jitter are arguments"
_WORLD = "touches the world outside"

FORBIDDEN_IN_PURE: Mapping[str, str] = {
    **dict.fromkeys((f"datetime.datetime.{m}" for m in ("now", "utcnow", "today")), _CLOCK),
    **dict.fromkeys(("datetime.date.today", "time"), _CLOCK),
    **dict.fromkeys(("random", "secrets", "uuid"), _CHANCE),
    **dict.fromkeys(("os", "open", "print", "input", "logging", "warnings"), _WORLD),
    **dict.fromkeys(("io", "pathlib", "socket", "subprocess", "sys", "threading"), _WORLD),
    "asyncio": _WORLD,
}

FORBIDDEN_IN_TESTS: Mapping[str, str] = {
    "time.sleep": "makes a test slow and its result a matter of luck; wait for an event",
}


def forbidden_in_pure(source: str) -> list[Finding]:
    """Names that would make a pure package depend on anything but its arguments."""
    return sorted(set(_banned(ast.parse(source), FORBIDDEN_IN_PURE)))


def forbidden_in_tests(source: str) -> list[Finding]:
    """Sleeping; `asyncio.sleep(0)` only yields and is allowed."""
    tree = ast.parse(source)
    return sorted({*_banned(tree, FORBIDDEN_IN_TESTS), *_async_sleeps(tree)})


def _banned(tree: ast.AST, rules: Mapping[str, str]) -> Iterator[Finding]:
    for line, name in references(tree):
        for rule, reason in rules.items():
            if name == rule or name.startswith(f"{rule}."):
                yield Finding(line, f"{rule} {reason}")


def _async_sleeps(tree: ast.AST) -> Iterator[Finding]:
    for node, name in calls(tree):
        if name != "asyncio.sleep":
            continue
        yields_only = [a.value for a in node.args if isinstance(a, ast.Constant)] == [0]
        if not yields_only:
            yield Finding(node.lineno, "asyncio.sleep waits for real time; use a virtual clock")


# --- SQL put together from pieces -----------------------------------------------------------

_SQL = (
    r"SELECT\s.+?\sFROM\b|INSERT\s+INTO\b|UPDATE\s+\S+\s+SET\b|DELETE\s+FROM\b"
    r"|(?:CREATE|ALTER|DROP)\s+(?:UNIQUE\s+)?(?:TABLE|INDEX|VIEW|TRIGGER|FUNCTION)\b"
)
# Capital keywords are SQL wherever they stand; in small letters they may be an English
# sentence, so there they count only at the start of a line.
_LOOKS_LIKE_SQL = (
    re.compile(_SQL + r"|\bWHERE\s+\S+\s*(?:=|<|>|IN\b|IS\b|LIKE\b)", re.DOTALL),
    re.compile(rf"^\s*(?:{_SQL})", re.DOTALL | re.IGNORECASE | re.MULTILINE),
)
# A character that no program text contains, so that literal question marks are not holes.
_HOLE = " \0 "
_FILLERS = {"format", "format_map", "join", "replace"}


def assembled_sql(source: str) -> list[Finding]:
    """SQL built by f-string, `+`, `%`, `+=`, or a method of the literal, instead of parameters."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        text = _assembled(node)
        if text and any(pattern.search(text) for pattern in _LOOKS_LIKE_SQL):
            line = getattr(node, "lineno", 0)
            found.add(Finding(line, "SQL is assembled from pieces; bind parameters instead"))
    return sorted(found)


def _assembled(node: ast.AST) -> str | None:
    """The literal text of an expression that mixes text with values, or None."""
    match node:
        case ast.JoinedStr() | ast.BinOp(op=ast.Add() | ast.Mod()):
            text = _literal(node)
            return text if _HOLE in text else None
        case ast.AugAssign(op=ast.Add() | ast.Mod(), value=value):
            return _literal(value)
        case ast.Call(func=ast.Attribute(value=receiver, attr=attr)) if attr in _FILLERS:
            return _literal(receiver)
        case _:
            return None


def _literal(node: ast.AST) -> str:
    """All literal text of an expression, with a hole for everything else."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(map(_literal, values))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _literal(left) + _literal(right)
        case ast.BinOp(left=left, op=ast.Mod()):
            return _literal(left) + _HOLE
        case _:
            return _HOLE


# --- states named in SQL --------------------------------------------------------------------

_COLUMN = r"""\b(?:state|source|target)\b["\]]?(?:::\w+)?"""
_WORDS = r"\(\s*(?:ARRAY\s*\[)?\s*('\w+'(?:\s*,\s*'\w+')*)"
_STATE_SPOTS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        rf"{_COLUMN}\s*(?:=|==|<>|!=|IS(?:\s+NOT)?(?:\s+DISTINCT\s+FROM)?)\s*('\w+')",
        rf"('\w+')(?:::\w+)?\s*(?:=|==|<>|!=)\s*(?:\w+\.)?[\"\[]?{_COLUMN}",
        rf"{_COLUMN}\s*(?:NOT\s+)?IN\s*{_WORDS}",
        rf"{_COLUMN}\s*(?:=|<>|!=)\s*(?:ANY|ALL)\s*{_WORDS}",
        rf"{_COLUMN}[^,;()]*?\bDEFAULT\s+('\w+')",
        rf"\bCASE\s+(?:\w+\.)?{_COLUMN}((?:\s+WHEN\s+'\w+'\s+THEN\s+\S+)+)",
    )
)
_ROWS = re.compile(
    r"\(([\w\s,.\"]+)\)\s*(?:NOT\s+)?IN\s*\(\s*(?:VALUES\s*)?((?:\([^()]*\)\s*,?\s*)+)\)",
    re.IGNORECASE,
)
_SQL_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def unknown_states(sql: str, known: Collection[str]) -> list[Finding]:
    """Words that SQL compares with a state, source or target column and no machine declares."""
    # Comments are blanked, not removed, so that line numbers stay true.
    bare = _SQL_COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), sql)
    words = {*_compared_words(bare), *_row_words(bare)}
    return sorted(
        Finding(line, f"no lifecycle has a state {word!r}")
        for line, word in words
        if word not in known
    )


def _compared_words(sql: str) -> Iterator[tuple[int, str]]:
    for pattern in _STATE_SPOTS:
        for match in pattern.finditer(sql):
            # What follows THEN is the answer of a CASE, not what the column is compared with.
            compared = re.sub(r"(?i)THEN\s+'\w+'", lambda m: " " * len(m[0]), match[1])
            for word in re.finditer(r"'(\w+)'", compared):
                yield _line(sql, match.start(1) + word.start()), word[1]


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def _row_words(sql: str) -> Iterator[tuple[int, str]]:
    """`(source, event, target) IN (('a', 'b', 'c'), ...)`: the words at the state columns."""
    for match in _ROWS.finditer(sql):
        columns = [c.strip().rpartition(".")[2].strip('" ') for c in match[1].split(",")]
        for row in re.finditer(r"\(([^()]*)\)", match[2]):
            line = _line(sql, match.start(2) + row.start())
            for column, value in zip(columns, row[1].split(","), strict=False):
                word = re.fullmatch(r"\s*'(\w+)'\s*", value)
                if word and column.lower() in {"state", "source", "target"}:
                    yield line, word[1]


# --- words that belong to the workshop, not to the product -----------------------------------

# Written in two halves, because this file is searched as well.
_WORKSHOP = ("../" + "shared", "work/" + "shared", "shared/" + "specs", "seeds" + "/0")


def workshop_words(text: str) -> list[Finding]:
    """Mentions of papers that a reader of the product does not have."""
    return [
        Finding(number, f"mentions {word!r}, which readers do not have")
        for number, line in enumerate(text.splitlines(), start=1)
        for word in _WORKSHOP
        if word in line
    ]
