"""Runs the fenced code blocks of a Markdown page the way a reader would.

A page is one session: its `python` blocks share a namespace, and a block of `text` or
`output` directly below a block that was run must be what the run printed.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
# Only what hangs takes so long: beside other work a block of a few commands takes a minute or two.
SHELL_SECONDS_MAX = 1_200

_FENCE = re.compile(r"^(?P<indent>\s*)(?P<marks>`{3,}|~{3,})\s*(?P<info>.*?)\s*$")
_OUTPUT = {"text", "output"}
_DIAGRAMS = (
    "classDiagram",
    "erDiagram",
    "flowchart",
    "gantt",
    "graph",
    "sequenceDiagram",
    "stateDiagram-v2",
    "timeline",
)

# The only commands that a page may show without the test running them.
UNRUN = {
    "git clone": "needs a network and the address of the repository",
    "cd": "enters what `git clone` made",
    "pip install": "changes an environment",
    "python3 -m": "makes an environment",
    ".": "enters it",
    "uv": "changes an environment",
    "make bench": "takes minutes",
    "make check": "would start this test again",
    "make clean": "removes the environment the test runs in",
    "make docs": "writes the site",
    "make format": "rewrites the sources",
    "make generate": "rewrites the docs",
    "make lock": "needs a network",
    "make mutate": "takes many minutes",
    "make run": "does not end by itself once there is a server to run",
    "make test": "would start this test again",
    "make test-fast": "would start this test again",
    ".ci/run": "would start this test again",
}


# What is typed in the first five minutes: it needs two terminals, and tests/fleet types it.
TYPED = {
    "detent up app.py",
    'python -c "from app import report; print(report.enqueue(60).id)"',
    "detent jobs list",
    "detent workers list",
    "kill -9 PID",
    "detent jobs show ID",
}


class BlockError(AssertionError):
    """A block that does not do what its page says; names the page and the line."""

    def __init__(self, block: "Block", message: str) -> None:
        super().__init__(f"{block.page}:{block.line}: {message}")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it starts, what kind it claims to be, what it contains."""

    page: str
    line: int
    info: str
    text: str
    # Whether only blank lines lie between the block before and this one.
    follows: bool = False


def parse(markdown: str, page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    lines = markdown.splitlines()
    found: list[Block] = []
    at, last_end = 0, -1
    while at < len(lines):
        opening = _FENCE.match(lines[at])
        if not opening:
            at += 1
            continue
        start, end = at, _closing(lines, at, opening["marks"], page)
        body = [_dedent(line, len(opening["indent"])) for line in lines[start + 1 : end]]
        follows = last_end >= 0 and not "".join(lines[last_end + 1 : start]).strip()
        found.append(Block(page, start + 1, opening["info"], "\n".join(body), follows))
        at, last_end = end + 1, end
    return found


def _closing(lines: Sequence[str], start: int, marks: str, page: str) -> int:
    for at in range(start + 1, len(lines)):
        text = lines[at].strip()
        if text.startswith(marks) and not text.strip(marks[0]):
            return at
    raise BlockError(Block(page, start + 1, "", ""), "this fence is never closed")


def _dedent(line: str, width: int) -> str:
    return line[width:] if not line[:width].strip() else line.lstrip()


def run_page(markdown: str, page: str) -> None:
    """Run or check every block; the first that is wrong raises `BlockError`."""
    found = parse(markdown, page)
    with _session() as session:
        for block, after in pairwise([*found, None]):
            assert block is not None
            expected = after if after and after.follows and after.info in _OUTPUT else None
            _run(block, expected, session)


@contextlib.contextmanager
def _session() -> Iterator[ModuleType]:
    """A real module, because classes look up their annotations in `sys.modules`."""
    session = ModuleType("documented_example")
    sys.modules[session.__name__] = session
    try:
        yield session
    finally:
        del sys.modules[session.__name__]


def _run(block: Block, expected: Block | None, session: ModuleType) -> None:
    match block.info:
        case "python":
            _compare(expected, _run_python(block, session))
        case "console":
            _compare(expected, "\n".join(_run_console(block)))
        case "console no-run":
            _need_unrunnable(block)
        case "toml" | "json" | "mermaid":
            _check_syntax(block)
        case "text" | "output" | "sql":
            pass
        case "":
            raise BlockError(block, "a block without a language cannot be checked")
        case other:
            raise BlockError(block, f"no way to check a block of {other!r}")


def _run_python(block: Block, session: ModuleType) -> str:
    # The padding makes a traceback show the line of the page.
    padded = "\n" * block.line + block.text
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(padded, block.page, "exec", dont_inherit=True), vars(session))
    except Exception as error:
        raise BlockError(block, f"the example raised {error!r}") from error
    return printed.getvalue()


def _compare(expected: Block | None, printed: str) -> None:
    if expected and not matches(expected.text, printed):
        raise BlockError(expected, f"the page promises another output than:\n{printed}")


def matches(expected: str, printed: str) -> bool:
    """Whether two outputs are equal; a line `...` stands for any number of lines."""
    wanted = [line.rstrip() for line in expected.strip("\n").splitlines()]
    got = "".join(line.rstrip() + "\n" for line in printed.strip("\n").splitlines())
    pattern = "".join(r"(?:.*\n)*" if w == "..." else re.escape(w) + r"\n" for w in wanted)
    return re.fullmatch(pattern, got) is not None


def commands(block: Block) -> list[tuple[str, str]]:
    """The (command, promised output) pairs of a console block."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif not found:
            raise BlockError(block, "a console block starts with a line `$ command`")
        elif found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1] = (f"{found[-1][0]}\n{line}", "")
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def _run_console(block: Block) -> Iterator[str]:
    for command, promised in commands(block):
        if reason := next(filter(None, map(_unrunnable, _parts(command))), None):
            raise BlockError(block, f"`{command}` {reason}; declare the block `console no-run`")
        done = _shell(command)
        if done.returncode:
            raise BlockError(block, f"`{command}` ended with {done.returncode}:\n{done.stdout}")
        if promised and not matches(promised, done.stdout):
            raise BlockError(block, f"`{command}` printed something else:\n{done.stdout}")
        yield done.stdout


def _shell(command: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    plain = {"PATH": path, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(
        command,
        shell=True,
        cwd=ROOT,
        env={**os.environ, **plain},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=SHELL_SECONDS_MAX,
        check=False,
    )


def _parts(command: str) -> list[str]:
    return [part.strip() for part in re.split(r"&&|\|\||;|\n", command)]


def _unrunnable(command: str) -> str | None:
    """Why a command is not run by the test, or None when it is."""
    words = command.split()
    for length in (1, 2):
        if reason := UNRUN.get(" ".join(words[:length])):
            return reason
    return None


def _need_unrunnable(block: Block) -> None:
    for command, _ in commands(block):
        for part in () if command in TYPED else _parts(command):
            if _unrunnable(part) is None:
                raise BlockError(block, f"`{part}` can be run, so it must be")


def _check_syntax(block: Block) -> None:
    try:
        match block.info:
            case "toml":
                tomllib.loads(block.text)
            case "json":
                json.loads(block.text)
            case _:
                _need_diagram(block)
    except ValueError as error:
        raise BlockError(block, f"not valid {block.info}: {error}") from error


def _need_diagram(block: Block) -> None:
    lines = (line.strip() for line in block.text.splitlines())
    first = next((line for line in lines if line and not line.startswith("%%")), "")
    if first.split(" ")[0] not in _DIAGRAMS:
        raise ValueError(f"{first!r} is not the start of a diagram")
