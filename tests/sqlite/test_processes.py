"""Several processes on one file: nobody is locked out, nothing is lost, nothing is done twice."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path

import pytest

from tests.sqlite.processes import ended, faults_of, go, rest_of, said, start, states, url_of

PROCESSES = 8


def test_eight_processes_share_one_file_and_do_every_job_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, pairs = tmp_path / "detent.db", 60
    children = [start("hammer", url_of(path), f"p{n}", str(pairs)) for n in range(PROCESSES)]
    go(children)
    spoken = ended(children)
    pushed = [job for lines in spoken for line in lines for job in line.get("pushed", [])]
    done = Counter(job for lines in spoken for line in lines for job in line.get("completed", []))
    assert len(pushed) == PROCESSES * pairs * 2
    assert done == Counter(pushed)
    assert faults_of(path) == []
    took = [each for lines in spoken for each in lines[-1]["took"]]
    with capsys.disabled():
        low, p99 = statistics.median(took) * 1e3, statistics.quantiles(took, n=100)[98] * 1e3
        print(f"\n8 processes, {len(took)} calls: median {low:.1f} ms, p99 {p99:.1f} ms")  # noqa: T201


def test_a_killed_writer_does_not_keep_the_others_from_writing(tmp_path: Path) -> None:
    path = tmp_path / "detent.db"
    victim, other = (start("write", url_of(path), name) for name in ("victim", "other"))
    for child in (victim, other):
        for _ in range(5):
            said(child)
    victim.kill()
    for _ in range(50):
        said(other)
    for child in (victim, other):
        child.kill()
        rest_of(child)
    assert faults_of(path) == []


@pytest.mark.parametrize("attempt", range(3))
def test_processes_may_open_a_new_file_at_the_same_moment(tmp_path: Path, attempt: int) -> None:
    path = tmp_path / f"detent-{attempt}.db"
    children = [start("open_at_once", url_of(path), f"p{n}") for n in range(4)]
    go(children)
    ended(children)
    assert len(states(path)) == 8
    assert faults_of(path) == []


def test_a_store_that_was_opened_before_a_fork_says_so_and_keeps_working_in_the_parent(
    tmp_path: Path,
) -> None:
    path = tmp_path / "detent.db"
    [spoken] = ended([start("use_after_fork", url_of(path), "p")])
    assert {"refused": "store_closed"} in spoken
    assert len(states(path)) == 4


def test_after_an_io_error_the_store_stops_and_what_it_acknowledged_is_there(
    tmp_path: Path,
) -> None:
    path = tmp_path / "detent.db"
    [spoken] = ended([start("outgrow", url_of(path), "p")])
    refused = [line["refused"] for line in spoken if "refused" in line]
    assert refused == ["store_broken"] * 3
    # Nothing was acknowledged between the first error and the end.
    first = spoken.index({"refused": "store_broken"})
    assert not any("pushed" in line for line in spoken[first:])
    pushed = {job for line in spoken for job in line.get("pushed", [])}
    assert pushed <= set(states(path))
    assert faults_of(path) == []
