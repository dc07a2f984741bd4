"""The house rules as pure functions: text in, findings out.

The tests beside this module apply them to the tree, and `test_rules.py` shows for each of
them a piece of text that it rejects.
"""

import __future__

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from types import ModuleType

from tests.tidy.references import calls, references

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60


@dataclass(frozen=True, order=True)
class Finding:
    """One breach of a rule: where, and what is wrong with it."""

    line: int
    message: str


# --- forbidden names ------------------------------------------------------------------------

_RUNS_DATA = "turns data into running code"
_FORKS = "hands objects over by pickle; start children with subprocess"

FORBIDDEN_ANYWHERE: Mapping[str, str] = {
    **dict.fromkeys(("pickle", "marshal", "shelve", "dill", "cloudpickle"), _RUNS_DATA),
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), _RUNS_DATA),
    **dict.fromkeys(("builtins.eval", "builtins.exec", "builtins.compile"), _RUNS_DATA),
    **dict.fromkeys(("yaml.load", "yaml.full_load", "yaml.unsafe_load"), _RUNS_DATA),
    **dict.fromkeys(("multiprocessing", "concurrent.futures.process"), _FORKS),
    "concurrent.futures.ProcessPoolExecutor": _FORKS,
    **dict.fromkeys(("os.system", "os.popen"), "starts a shell"),
    "unittest.mock": "belongs to no product",
}

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
    "unittest.mock": "hand in a small real object instead",
    "time.sleep": "makes a test slow and its result a matter of luck; wait for an event",
}


def forbidden_anywhere(source: str) -> list[Finding]:
    """Names that no product module may refer to, and calls that open a shell."""
    tree = ast.parse(source)
    return sorted({*_banned(tree, FORBIDDEN_ANYWHERE), *_shells(tree)})


def forbidden_in_pure(source: str) -> list[Finding]:
    """Names that would make a pure package depend on anything but its arguments."""
    return sorted(set(_banned(ast.parse(source), FORBIDDEN_IN_PURE)))


def forbidden_in_tests(source: str) -> list[Finding]:
    """Mocks and sleeping; `asyncio.sleep(0)` only yields and is allowed."""
    tree = ast.parse(source)
    return sorted({*_banned(tree, FORBIDDEN_IN_TESTS), *_async_sleeps(tree)})


def _banned(tree: ast.AST, rules: Mapping[str, str]) -> Iterator[Finding]:
    for line, name in references(tree):
        for rule, reason in rules.items():
            if name == rule or name.startswith(f"{rule}."):
                yield Finding(line, f"{rule} {reason}")


def _shells(tree: ast.AST) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.keyword) or node.arg != "shell":
            continue
        if not (isinstance(node.value, ast.Constant) and node.value.value is False):
            yield Finding(node.value.lineno, "shell= starts a shell; pass a list of arguments")


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


# --- sizes and names ------------------------------------------------------------------------

_SAYS_NOTHING = re.compile(r"_*(utils?|commons?|helpers?|managers?|bases?|misc)")


def too_long(source: str) -> list[Finding]:
    """Files and functions past the size at which they should have been split."""
    found = []
    lines = len(source.splitlines())
    if lines > FILE_LINES_MAX:
        found.append(Finding(1, f"{lines} lines in one file; at most {FILE_LINES_MAX}"))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES_MAX:
                message = f"{node.name} has {size} lines; at most {FUNCTION_LINES_MAX}"
                found.append(Finding(node.lineno, message))
    return sorted(found)


def code_lines(source: str) -> int:
    """How many lines there are that are neither blank nor a comment nor of a docstring."""
    said = {
        number
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and _is_text(node.value)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = [line.strip() for line in source.splitlines()]
    code = [number for number, line in enumerate(lines, 1) if line and not line.startswith("#")]
    return len(set(code) - said)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def says_nothing(path: PurePath) -> list[Finding]:
    """Files and folders named after nothing in particular, where anything would fit."""
    parts = [PurePath(part).stem for part in path.parts]
    return [Finding(1, f"{part!r} says nothing") for part in parts if _SAYS_NOTHING.fullmatch(part)]


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


# --- public names ---------------------------------------------------------------------------


def export_breaches(declared: Sequence[str], namespace: Mapping[str, object]) -> list[str]:
    """How a module's `__all__` differs from the public names that the module really has."""
    public = {name for name, value in namespace.items() if _is_export(name, value)}
    unsorted = list(declared) != sorted(declared, key=_export_order)
    return [
        *(["__all__ is not sorted"] if unsorted else []),
        *(f"{name} is listed twice" for name, count in Counter(declared).items() if count > 1),
        *(f"{name} is listed but missing" for name in declared if name not in namespace),
        *(f"{name} is public but not listed" for name in sorted(public - set(declared))),
    ]


def _is_export(name: str, value: object) -> bool:
    """Submodules are reached by their path, and what others made is not ours to export."""
    maker = getattr(value, "__module__", None)
    is_ours = maker is None or maker.partition(".")[0] == "detent"
    is_switch = isinstance(value, type(__future__.annotations))
    return (
        not name.startswith("_") and not isinstance(value, ModuleType) and is_ours and not is_switch
    )


def _export_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that ruff's RUF022 writes."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return rank, name


def private_imports(source: str) -> list[Finding]:
    """Names with an underscore, taken from another module: there they are nobody else's."""
    return [
        Finding(node.lineno, f"{alias.name} is private to {node.module}")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if re.match("_[^_]", alias.name)
    ]


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
