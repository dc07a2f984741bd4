"""mypy and pyright know the arguments of `.enqueue(...)` and the type of its result."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).with_name("sample.py")
ROOT = SAMPLE.parents[2]
WRONG = {
    number
    for number, line in enumerate(SAMPLE.read_text("utf-8").splitlines(), start=1)
    if line.endswith("# wrong")
}


def output_of(*command: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own words
        [sys.executable, "-m", *command], cwd=ROOT, text=True, capture_output=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_mypy_finds_exactly_what_is_wrong(tmp_path: Path) -> None:
    said = output_of("mypy", "--strict", f"--cache-dir={tmp_path}", str(SAMPLE))
    found = {int(line) for line in re.findall(r"sample\.py:(\d+): error", said)}
    assert found == WRONG, said


@pytest.mark.slow
def test_pyright_finds_exactly_what_is_wrong() -> None:
    said = json.loads(output_of("pyright", "--outputjson", str(SAMPLE)))
    errors = [one for one in said["generalDiagnostics"] if one["severity"] == "error"]
    assert {one["range"]["start"]["line"] + 1 for one in errors} == WRONG, errors
