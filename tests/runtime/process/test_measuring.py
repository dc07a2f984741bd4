"""What is used, and whether memory ran out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from detent.lifecycle.worker import Exit
from detent.runtime.process import measuring
from detent.runtime.process.keeper import Keeper
from detent.runtime.process.measuring import MemoryKills, usage
from tests.runtime.process.yard import child, program, say, started
from tests.waiting import until

GROUPS = os.environ.get("DETENT_TEST_CGROUP")
"""A control group that is ours to make groups in; its memory has to be limitable."""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory."""
    if GROUPS is None:
        pytest.skip("DETENT_TEST_CGROUP names no control group to make others in")
    group = Path(GROUPS) / f"detent-test-{os.getpid()}"
    group.mkdir()
    limits = (group / "memory.max", group / "memory.limit_in_bytes")
    next(limit for limit in limits if limit.exists()).write_text("200000000")
    yield group
    group.rmdir()


def test_a_kill_for_want_of_memory_is_told_apart(small_group: Path) -> None:
    # As in a container: supervisor and worker share a group, and the worker wants too much.
    code = f"""
import asyncio, os
with open({str(small_group / "cgroup.procs")!r}, "w") as file: file.write(str(os.getpid()))
from detent.runtime.process.keeper import keeper
from tests.runtime.process.yard import program, started
async def main():
    body = await started(keeper(), program("x = b'x' * 600_000_000"))
    end = await body.ended()
    print(end.exit_code, end.is_oom)
asyncio.run(main())
keeper().close()
"""
    assert say(code) == ["-9 True"]


async def test_a_kill_for_another_reason_is_not_blamed_on_memory(keeper: Keeper) -> None:
    body = await started(keeper, program("import os; os.kill(os.getpid(), 9)"))
    assert await body.ended() == Exit.of_process(-9)


def test_a_kill_counts_from_the_moment_we_began_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "_CGROUPS", tmp_path)
    for place in measuring.counters(Path("/proc/self/cgroup").read_text())[:-1]:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("oom_kill_disable 0\nunder_oom 0\noom 9\noom_kill 3\n")
    kills = MemoryKills(os.getpid())
    assert not kills.happened()
    for place in tmp_path.rglob("memory.*"):
        place.write_text("oom_kill 4\n")
    assert kills.happened()


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("0::/app\n", ["/sys/fs/cgroup/app/memory.events", "/proc/vmstat"]),
        (
            "4:cpu,memory:/app\n0::/\n",
            [
                "/sys/fs/cgroup/memory/app/memory.oom_control",
                "/sys/fs/cgroup/memory.events",
                "/proc/vmstat",
            ],
        ),
        ("", ["/proc/vmstat"]),
    ],
)
def test_the_counter_of_the_own_group_is_preferred(groups: str, expected: list[str]) -> None:
    assert [str(place) for place in measuring.counters(groups)] == expected


def test_a_process_that_is_gone_uses_nothing() -> None:
    one = child("true", start_new_session=True)
    one.wait()
    assert usage(one.pid) == (0, 0.0)
    assert not MemoryKills(one.pid).happened()


async def test_time_used_by_reaped_children_counts(keeper: Keeper) -> None:
    code = """
import subprocess, sys, time
burn = "import time; e = time.process_time() + 0.2\\nwhile time.process_time() < e: pass"
subprocess.run([sys.executable, "-S", "-c", burn])
print("burnt", flush=True)
time.sleep(1000)
"""
    body = await started(keeper, program(code))
    await until(lambda: body.tail(1) == ["burnt"])
    used = body.usage()
    assert used is not None
    assert used.cpu_s >= 0.2
    await body.force()
    await body.ended()


def test_what_ps_says_is_understood() -> None:
    rss, cpu = measuring.process_by_ps(os.getpid())
    assert rss > 1_000_000
    assert cpu >= 0
    assert measuring.process_by_ps(2**22 + 1) == (0, 0.0)
