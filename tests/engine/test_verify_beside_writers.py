"""A store that is written to all the time gives no cause for alarm."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent import stores
from detent.engine.verify import Finding, Seen, Verification
from tests.sqlite.processes import ROOT, url_of


@pytest.fixture
def written(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a store, and the process that writes to it until the test is over."""
    url = url_of(tmp_path / "detent.db")
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-m", "tests.engine.writer", url],
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield url, child
        finally:
            child.kill()


# A writer that gets no processor time for so many looks is a failure of the test.
MAX_LOOKS = 200


def has_seen_changes(seen: list[Seen]) -> bool:
    """Whether workflows came or went and jobs were forgotten between the first and last look."""
    has_workflows = len({one.workflows for one in seen}) > 1
    return has_workflows and seen[-1].forgotten > seen[0].forgotten > 0


async def checked(
    url: str, child: subprocess.Popen[str], runs: int
) -> tuple[list[Finding], list[Seen]]:
    """What is found in that many runs or more, until all that counts was written meanwhile."""
    found: list[Finding] = []
    seen: list[Seen] = []
    async with stores.open(url) as store:
        for _ in range(MAX_LOOKS):
            if len(seen) >= runs and has_seen_changes(seen):
                break
            verification = Verification(store)
            found += [one async for one in verification.findings()]
            # A busy machine may not let the writer run; such a look proves nothing.
            if await store.feed(verification.seen.end, 1):
                seen.append(verification.seen)
            assert child.poll() is None, "the writer has stopped"
    return found, seen


async def checked_once(url: str) -> list[Finding]:
    async with stores.open(url) as store:
        return [one async for one in Verification(store).findings()]


def listened(child: subprocess.Popen[str], rounds: int) -> None:
    """Return when the child has written that many times more, so that it is surely at work."""
    assert child.stdout is not None
    for _ in range(rounds):
        assert child.stdout.readline() == "round\n"


def test_beside_a_process_that_writes_all_the_time_nothing_is_ever_wrong(
    written: tuple[str, subprocess.Popen[str]],
) -> None:
    url, child = written
    listened(child, 30)
    found, seen = asyncio.run(checked(url, child, 3))
    assert found == []
    assert has_seen_changes(seen), "the writer hardly ran"
    child.kill()
    child.wait()
    assert asyncio.run(checked_once(url)) == []
