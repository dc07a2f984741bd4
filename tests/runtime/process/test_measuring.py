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
from tests.runtime.process.yard import child, program, say, started, until

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, where we may make one."""
    own = Path("/proc/self/cgroup").read_text().splitlines()
    v1 = [line.split(":", 2)[2][1:] for line in own if ":memory:" in line]
    v2 = [line[4:] for line in own if line.startswith("0::/")]
    base = V1 / v1[0] if v1 else V2 / v2[0]
    group = base / f"detent-test-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if v1 else "memory.max")
        limit.write_text("200000000")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
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
