"""`detent lifecycle` as a user runs it: real processes, real pipes, a real terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from detent.lifecycle import MACHINES
from detent.lifecycle.diagram import lifecycle_mermaid

SVG = "{http://www.w3.org/2000/svg}"
_QUIET = {"COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "PYTHONIOENCODING", "TERM"}
CLEAN = {name: value for name, value in os.environ.items() if name not in _QUIET}


def run(
    *command: str, env: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # noqa: S603 - our own command
        command,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        env={**CLEAN, **(env or {})},
        timeout=60,
    )


def detent(*args: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return run(sys.executable, "-m", "detent", *args, env=env)


@cache
def said(*args: str, **env: str) -> str:
    done = detent(*args, **env)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode("utf-8")


def refused(*args: str) -> str:
    done = detent(*args)
    assert done.returncode == 2
    assert done.stdout == b""
    return " ".join(done.stderr.decode("utf-8").split())


def on_terminal(*args: str, **env: str) -> str:
    """What a terminal of 72 columns is sent."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "detent", *args]
    told = {**CLEAN, "TERM": "xterm-256color", "COLUMNS": "72", **env}
    with subprocess.Popen(  # noqa: S603 - our own command
        command, stdout=theirs, stderr=theirs, stdin=theirs, env=told
    ) as running:
        os.close(theirs)
        sent = read_to_the_end(ours)
    assert running.returncode == 0, sent
    return sent


def read_to_the_end(terminal: int) -> str:
    data = b""
    with os.fdopen(terminal, "rb", buffering=0) as stream:
        while True:
            # Linux answers with an error, others with nothing, when the other side has closed.
            try:
                chunk = stream.read(65_536)
            except OSError:
                break
            if not chunk:
                break
            data += chunk
    return data.decode("utf-8")


# --- the overview ---------------------------------------------------------------------------------


def test_without_an_argument_every_lifecycle_is_shown_with_every_state() -> None:
    text = said("lifecycle")
    for machine in MACHINES.values():
        assert f"{machine.name}: {len(machine.states)} states" in text
        for state in machine.states:
            assert re.search(
                rf"^{state.name} +{state.phase} +{re.escape(state.meaning)}", text, re.M
            )


def test_the_overview_is_machine_readable_too() -> None:
    assert list(json.loads(said("lifecycle", "--json"))) == list(MACHINES)


def test_in_a_pipe_it_is_plain_text_with_one_row_per_line() -> None:
    text = said("lifecycle")
    assert "\x1b" not in text
    assert text.isascii()
    assert all(line == line.rstrip() for line in text.splitlines())
    rows = sum(len(machine.states) for machine in MACHINES.values())
    assert len(text.splitlines()) == rows + 3 * len(MACHINES) + 1


def test_a_terminal_gets_colours_and_rows_that_fit() -> None:
    sent = on_terminal("lifecycle")
    assert "\x1b[" in sent
    assert "╭" in sent
    plain = re.sub(r"\x1b\[[0-9;]*m", "", sent)
    assert max(len(line) for line in plain.splitlines()) <= 72


def test_no_color_is_honoured_on_a_terminal() -> None:
    sent = on_terminal("lifecycle", "job", NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", sent)
    assert "╭" in sent


# --- one lifecycle, every format ------------------------------------------------------------------


@pytest.mark.parametrize("name", MACHINES)
def test_a_table_lists_every_edge_and_amendment(name: str) -> None:
    lines = said("lifecycle", name).splitlines()
    machine = MACHINES[name]
    rows = {tuple(re.split(r" {2,}", line)) for line in lines}
    for edge in machine.edges:
        said_of_it = (edge.event, edge.target, ", ".join(edge.actors), edge.meaning)
        for source in edge.sources:
            assert (source or "(new)", *said_of_it) in rows
    for one in machine.amendments:
        assert (one.event, ", ".join(one.actors), one.meaning, ", ".join(one.states)) in rows


@pytest.mark.parametrize("name", MACHINES)
def test_mermaid_is_exactly_the_diagram(name: str) -> None:
    text = said("lifecycle", name, "--format", "mermaid")
    assert text.startswith("stateDiagram-v2\n")
    assert text == lifecycle_mermaid(MACHINES[name])


@pytest.mark.parametrize("name", MACHINES)
def test_svg_is_a_picture_with_every_state(name: str) -> None:
    root = ET.fromstring(said("lifecycle", name, "--format", "svg"))  # noqa: S314 - our own output
    assert root.tag == f"{SVG}svg"
    words = {"".join(text.itertext()) for text in root.iter(f"{SVG}text")}
    assert {state.name for state in MACHINES[name].states} <= words


@pytest.mark.parametrize("name", MACHINES)
def test_json_says_everything_the_table_says(name: str) -> None:
    machine, data = MACHINES[name], json.loads(said("lifecycle", name, "--format", "json"))
    assert data["name"] == name
    assert [state["name"] for state in data["states"]] == [one.name for one in machine.states]
    triples = {
        (source, edge["event"], edge["target"])
        for edge in data["edges"]
        for source in edge["sources"]
    }
    amended = {(s, one["event"], None) for one in data["amendments"] for s in one["states"]}
    assert triples | amended == machine.triples
    assert set(data["terminal"]) == machine.terminal
    assert set(data["initial"]) == machine.initial
    assert data["causes"] == list(machine.causes)
    assert data["fingerprint"] == machine.fingerprint()


def test_a_table_is_the_default_and_json_has_a_short_name() -> None:
    assert said("lifecycle", "job") == said("lifecycle", "job", "-f", "table")
    assert said("lifecycle", "job", "--json") == said("lifecycle", "job", "--format", "json")


@pytest.mark.parametrize("style", ["table", "svg"])
def test_output_goes_to_the_file_and_nowhere_else(style: str, tmp_path: Path) -> None:
    file = tmp_path / "picture"
    assert said("lifecycle", "job", "--format", style, "--output", str(file)) == ""
    assert file.read_text("utf-8") == said("lifecycle", "job", "--format", style)


# --- faults and odd surroundings ------------------------------------------------------------------


@pytest.mark.parametrize(("wrong", "near"), [("jbo", "job"), ("Workers", "worker")])
def test_an_unknown_machine_is_refused_with_the_nearest_name(wrong: str, near: str) -> None:
    told = refused("lifecycle", wrong)
    assert f"Did you mean '{near}'?" in told
    assert "Known are: job, workflow, step, worker." in told


def test_a_name_that_is_near_to_nothing_gets_the_list_alone() -> None:
    told = refused("lifecycle", "zzz")
    assert "Did you mean" not in told
    assert "Known are" in told


@pytest.mark.parametrize("style", ["mermaid", "svg"])
def test_a_picture_of_all_lifecycles_at_once_is_refused(style: str) -> None:
    assert "name it (job, workflow, step, worker)" in refused("lifecycle", "--format", style)


def test_an_unknown_format_is_refused() -> None:
    told = refused("lifecycle", "job", "--format", "png")
    assert "mermaid" in told


def test_json_contradicts_another_format() -> None:
    assert "--json contradicts --format svg" in refused("lifecycle", "job", "--json", "-f", "svg")
    assert json.loads(said("lifecycle", "job", "--json", "-f", "json"))["name"] == "job"


def test_a_file_that_cannot_be_written_ends_with_one_and_says_why(tmp_path: Path) -> None:
    done = detent("lifecycle", "job", "--output", str(tmp_path / "missing" / "file"))
    assert done.returncode == 1
    assert b"cannot write" in done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("style", ["table", "svg"])
def test_a_reader_that_goes_away_is_no_error(style: str) -> None:
    """The reading end is closed before the first byte is written."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = run(sys.executable, "-m", "detent", "lifecycle", "job", "-f", style, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that only Linux has")
@pytest.mark.parametrize(
    "args",
    [
        ("lifecycle",),
        ("lifecycle", "job", "-f", "svg"),
        ("lifecycle", "--help"),
        ("--help",),
        ("--version",),
        (),
    ],
)
def test_a_full_device_is_told_in_one_line(args: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run(sys.executable, "-m", "detent", *args, stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr == b"Error: cannot write to standard output: No space left on device.\n"


@pytest.mark.parametrize(
    ("name", "width"), [("job", 12), ("worker", 30), ("job", 60), ("step", 72)]
)
def test_no_word_is_broken_however_narrow_the_terminal(name: str, width: int) -> None:
    sent = re.sub(r"\x1b\[[0-9;]*m", "", on_terminal("lifecycle", name, COLUMNS=str(width)))
    machine = MACHINES[name]
    texts = [state.meaning for state in machine.states]
    texts += [edge.meaning for edge in machine.edges] + list(machine.events)
    texts += [one.meaning for one in machine.amendments]
    expected = {word for text in texts for word in text.split()}
    assert expected <= set(sent.split())
    longest = max(map(len, expected)) + len("    ,")
    assert max(map(len, sent.splitlines())) <= max(width, longest)


def test_a_terminal_too_narrow_for_a_table_gets_a_list() -> None:
    sent = on_terminal("lifecycle", "job", COLUMNS="30", NO_COLOR="1")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", sent).replace("\r\n", "\n")
    assert "╭" not in plain
    first = MACHINES["job"].states[0]
    assert f"state: {first.name}\n  phase: {first.phase}\n  meaning: " in plain
    assert "╭" in on_terminal("lifecycle", "job", COLUMNS="80")


@pytest.mark.parametrize("args", [("lifecycle",), ("--help",)])
def test_an_ascii_terminal_is_no_error(args: tuple[str, ...]) -> None:
    sent = on_terminal(*args, PYTHONIOENCODING="ascii")
    assert sent.isascii()


def test_machine_formats_are_utf_8_whatever_the_terminal_speaks() -> None:
    picture = said("lifecycle", "job", "--format", "svg")
    assert said("lifecycle", "job", "-f", "svg", PYTHONIOENCODING="ascii") == picture


def test_version_and_help() -> None:
    assert said("--version") == f"detent {version('detent')}\n"
    assert "lifecycle" in said()
    assert said("--help") == said("-h") == said()
    assert "--format" in said("lifecycle", "--help")


def test_the_command_and_the_module_are_the_same() -> None:
    done = run(str(Path(sys.executable).with_name("detent")), "--version")
    assert done.stdout.decode() == said("--version")
