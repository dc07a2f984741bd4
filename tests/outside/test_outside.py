"""What users, clients and stored data can see of Detent, as snapshots.

A change that is meant is accepted with `make snapshots`; the difference then stands in the commit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.outside.collect import (
    HANDOVER,
    SHAPELESS,
    STORED,
    CommandLine,
    answer_to,
    commands,
    errors,
    fields,
    pool_messages,
    read_in_source,
    socket_messages,
)
from tests.outside.columns import canonical
from tests.outside.day import Day, lived
from tests.postgres.server import databases

SNAPSHOTS = Path(__file__).parent / "snapshots"
LINES_SHOWN = 60
CHARS_SHOWN = 300
Check = Callable[..., None]


@pytest.fixture
def check(pytestconfig: pytest.Config) -> Check:
    """Compare these lines with a snapshot, or write it."""

    def check(name: str, lines: Iterable[str], *, may_write: bool = True) -> None:
        path, found = SNAPSHOTS / name, list(lines)
        if may_write and pytestconfig.getoption("--write", default=False):
            path.write_text("\n".join(found) + "\n", "utf-8")
        kept = path.read_text("utf-8").splitlines() if path.exists() else []
        differences = list(unified_diff(kept, found, "snapshot", "now", n=0, lineterm=""))
        shown = "\n".join(line[:CHARS_SHOWN] for line in differences[:LINES_SHOWN])
        why = f"{name} has changed; if it was meant to, accept it with: make snapshots\n{shown}"
        assert not differences, why

    return check


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Day]:
    """The scripted day on SQLite, with the server still running."""
    with lived(f"sqlite:///{tmp_path_factory.mktemp('day')}/detent.db") as day:
        yield day


# --- what is stored -----------------------------------------------------------------------------


def test_what_a_day_leaves_in_sqlite(day: Day, check: Check) -> None:
    check("day.jsonl", day.rows)


@pytest.mark.slow
def test_it_leaves_the_same_in_postgresql(tmp_path: Path, check: Check) -> None:
    with lived(databases().of(tmp_path)) as day:
        check("day.jsonl", day.rows, may_write=False)


def test_what_is_written_into_records_and_columns_of_json(day: Day, check: Check) -> None:
    lines = [f"{name} {line}" for name, kind in STORED.items() for line in fields(kind)]
    check("stored.txt", lines)
    met = {f"record {one['kind']}" for one in canonical(day.url)["records"]}
    assert met <= STORED.keys() | SHAPELESS, "a kind of record that collect.py does not know"


# --- HTTP ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("ojs", "/ojs/v1/openapi.json"),
        ("jobnik", "/docs/api.json"),
        ("rest", "/api/openapi.json"),
        ("engine", "/engine/openapi.json"),
    ],
)
def test_openapi_documents(day: Day, check: Check, name: str, path: str) -> None:
    document = json.loads(day.get(path))
    del document["info"]["version"]
    for operations in document["paths"].values():
        for operation in operations.values():
            # It is for people; the first line of a docstring.
            del operation["summary"]
    check(f"openapi.{name}.json", as_json(document))


def test_the_manifest_of_ojs(day: Day, check: Check) -> None:
    manifest = json.loads(day.get("/ojs/manifest"))
    del manifest["implementation"]["version"]
    check("manifest.json", as_json(manifest))


def test_messages_over_sockets(day: Day, check: Check) -> None:
    check("sockets.txt", sorted(socket_messages(day.server)))


def test_metrics(day: Day, check: Check) -> None:
    families = text_string_to_metric_families(day.get("/metrics").decode())
    server = {
        f"{one.name} {one.type} {' '.join(sorted({key for x in one.samples for key in x.labels}))}"
        for one in families
    }
    lines = [f"server {one}".rstrip() for one in sorted(server)]
    check("metrics.txt", [*lines, *(f"supervisor {one}" for one in read_in_source()[1])])


def test_errors(day: Day, check: Check, caplog: pytest.LogCaptureFixture) -> None:
    # Those that nobody foresees are logged, each with a traceback.
    caplog.set_level(logging.CRITICAL)
    lines = []
    for error in errors():
        told = [f"{error.code} {error.__name__}{' retryable' if error.retryable else ''}"]
        for path in ("/ojs/v1", "/v1", "/api/jobs", "/engine"):
            status, body = answer_to(day.server, path, error("why"))
            told.append(f"{path} {status} {body.get('error', body)['code']}")
        lines.append(", ".join(told))
    check("errors.txt", lines)


# --- commands -----------------------------------------------------------------------------------

# What each command that can answer in JSON is asked, in this order. Words in braces are ids.
ASKED = """
config show; doctor; verify; migrate; migrate --check; lifecycle; lifecycle job; events
jobs list; jobs show {talks}; jobs show {doomed}; jobs why {x.later}; jobs history {flaky}
jobs logs {talks}; jobs hold {x.later}; jobs release {x.later}; jobs priority {x.later} --to 4
jobs move {x.later} --to other; jobs run-now {x.later}; jobs cancel {x.later}
jobs rerun {doomed} --reason again; replay {flaky}
queues list; queues limit q --concurrency 3; queues pause q; queues resume q
schedules list; schedules add s @daily plain; schedules pause s; schedules resume s
schedules fire s; schedules remove s
workflow list; workflow show {flow}; workflow tree {flow}; workflow wait {flow} 2
workflow approve {flow} 2; workflow pause {flow}; workflow resume {flow}; workflow abort {flow}
workers list; workers tree; workers history instance-1
keys create --scope read; keys list; keys revoke {key}; prune --completed 1d --dry-run
"""
# Those that steer a supervisor, of which there is none, and one that answers nothing.
NOT_ASKED = {f"workers {one}" for one in ("kill", "restart", "resume", "start", "stop", "suspend")}
NOT_ASKED |= {"serve"}


def test_help_of_every_command(check: Check) -> None:
    command = CommandLine()
    lines: list[str] = []
    for words, _ in commands(command):
        page = command.run(*words, "--help").splitlines()
        lines += [f"$ detent {' '.join(words)}".rstrip(), *page]
    check("help.txt", lines)


def test_what_commands_answer_in_json(day: Day, check: Check) -> None:
    steps = [{"type": "wired", "args": [], "options": {"queue": "x"}} for _ in range(2)]
    flow = day.ojs.post("/workflows", {"type": "chain", "steps": steps}).ok(201)["workflow"]
    named = {name: day.id_of(name) for name in ("talks", "doomed", "flaky", "x.later")}
    named |= {"flow": flow["id"], "key": "02" * 9}
    asked = [words.split() for line in ASKED.strip().splitlines() for words in line.split("; ")]
    lines = []
    for words in asked:
        filled = [named.get(one.strip("{}"), one) if one[0] == "{" else one for one in words]
        answer = day.command.run(*filled, "--json", codes=(0, 1))
        shapes = sorted(set(shape_of(read(answer))))
        lines += [f"{' '.join(words)}: {one}" for one in shapes]
    check("answers.txt", lines)
    known = {" ".join(words) for words, is_json in commands(day.command) if is_json}
    told = [" ".join(words) for words in asked]
    missed = [one for one in known - NOT_ASKED if not any(x.startswith(one) for x in told)]
    assert not missed, "ask these too"


# --- processes ----------------------------------------------------------------------------------


def test_what_processes_say_to_each_other(check: Check) -> None:
    channel = [f"channel {one}" for one in read_in_source()[0]]
    said = sorted(pool_messages().items())
    pool = [f"pool {kind} {one}" for kind, lines in said for one in lines or [""]]
    handover = [f"environment {one}" for one in sorted(HANDOVER.environment())]
    check("processes.txt", (one.rstrip() for one in [*channel, *pool, *handover]))


# --- shapes -------------------------------------------------------------------------------------


def as_json(document: Any) -> list[str]:
    """The document, an item a line."""
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def read(text: str) -> Any:
    """What a command has answered: one document, or one a line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]


def shape_of(value: Any, path: str = "") -> Iterator[str]:
    """The names and kinds in it, without what they hold."""
    if isinstance(value, dict) and value:
        for name, one in value.items():
            yield from shape_of(one, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for one in value:
            yield from shape_of(one, f"{path}[]")
    else:
        yield f"{path} {type(value).__name__}"
