"""What a child writes."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path

import pytest

from detent.runtime.process.body import ProcessBody
from detent.runtime.process.keeper import Keeper
from detent.runtime.process.output import LINE_BYTES_MAX, Drain, Line, Output
from detent.runtime.process.rotation import Files
from tests.runtime.process.yard import HANDOVER, is_gone, program, started
from tests.waiting import until


def test_lines_come_in_the_order_in_which_they_were_completed() -> None:
    output = Output()
    output.write("stdout", b"one\ntw")
    output.write("stderr", b"bad\n")
    assert output.tail(9) == ["one", "bad", "tw"], "what has not ended yet included"
    first = output.read()
    assert [(line.stream, line.text) for line in first] == [("stdout", "one"), ("stderr", "bad")]
    output.write("stdout", b"o\nrest")
    assert [line.text for line in output.read(first[-1].cursor)] == ["two"]
    output.finish()
    last = output.read(first[-1].cursor)
    assert [(line.text, line.is_partial) for line in last] == [("two", False), ("rest", True)]
    assert output.read(output.end) == []
    assert output.tail(1) == ["rest"]
    assert output.tail(0) == []


def test_what_is_no_text_is_shown_anyway() -> None:
    output = Output()
    output.write("stdout", b"\xff\xfe caf\xc3")
    output.write("stdout", b"\xa9\n50%\r100%\r\n")
    assert output.tail(9) == ["\ufffd\ufffd café", "50%\r100%"]


def test_a_line_without_end_is_cut() -> None:
    output = Output()
    for _ in range(3):
        output.write("stdout", b"x" * LINE_BYTES_MAX)
    found = output.read()
    assert [len(line.text) for line in found] == [2 * LINE_BYTES_MAX]
    assert found[0].is_partial


def test_a_ring_forgets_the_oldest_and_says_so() -> None:
    output = Output(ring_bytes=100_000)
    for number in range(20_000):
        output.write("stdout", b"line %d\n" % number)
    found = output.read(0)
    assert found[0].missed == output.start > 0
    assert found[-1].text == "line 19999"
    assert all(line.missed == 0 for line in found[1:])
    assert output.end - output.start <= 100_000
    again = output.read(found[10].cursor)
    assert again == found[11:], "every cursor is a place to go on"


async def test_followers_get_everything_to_the_end() -> None:
    output = Output()
    output.write("stdout", b"before\n")

    async def follow(cursor: int) -> list[str]:
        return [line.text async for line in output.follow(cursor)]

    tasks = [asyncio.create_task(follow(cursor)) for cursor in (0, output.end)]
    for number in range(3):
        await asyncio.sleep(0)
        output.write("stderr", b"line %d\n" % number)
    output.write("stdout", b"rest")
    output.finish()
    rest = ["line 0", "line 1", "line 2", "rest"]
    assert await asyncio.gather(*tasks) == [["before", *rest], rest]
    assert await follow(0) == ["before", *rest], "also afterwards"


async def test_a_flood_costs_no_memory_and_never_blocks_the_child(
    keeper: Keeper, tmp_path: Path
) -> None:
    """W-80."""
    code = """
import os
block = b"x" * 99 + b"\\n"
for _ in range(1000): os.write(1, block * 1000)
os.write(2, b"done\\n")
"""
    files = Files(tmp_path, "a/slot", file_bytes=1_000_000, files=3)
    tracemalloc.start()
    try:
        body = ProcessBody(program(code), files=files, keeper=keeper)
        await body.spawn(HANDOVER)
        end = await body.ended()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert end.number == 0
    assert body.tail(1) == ["done"]
    assert body.output.end == 100_000_000 + 5
    assert peak < 10_000_000
    files.close()
    assert _sizes(tmp_path).keys() == {"a%2Fslot.log", "a%2Fslot.log.1", "a%2Fslot.log.2"}
    assert max(_sizes(tmp_path).values()) <= 1_000_000
    assert (files.path.stat().st_mode & 0o777, files.lost_bytes) == (0o600, 0)


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir()}


async def test_lines_are_seen_while_the_child_runs(keeper: Keeper) -> None:
    body = await started(keeper, program("import sys; print('now', end='', flush=True); input()"))
    await until(lambda: body.tail(1) == ["now"])
    await body.ended()


async def test_somebody_who_keeps_the_pipe_open_does_not_keep_us(keeper: Keeper) -> None:
    # A process that has left the session is not ours to kill; its grip on the pipe is ignored.
    code = """
import subprocess
p = subprocess.Popen(["sleep", "1000"], start_new_session=True)
print(p.pid, flush=True)
"""
    body = await started(keeper, program(code))
    assert (await body.ended()).number == 0
    escaped = int(body.tail(1)[0])
    assert not is_gone(escaped)
    os.kill(escaped, 9)


def test_files_go_on_where_they_were_and_survive_a_lost_disk(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    first = Files(folder, "slot", file_bytes=10, files=2)
    first.write(b"12345\n")
    first.close()
    second = Files(folder, "slot", file_bytes=10, files=2)
    second.write(b"6\n")
    second.write(b"789\n")
    second.close()
    assert (folder / "slot.log.1").read_bytes() == b"12345\n6\n"
    assert (folder / "slot.log").read_bytes() == b"789\n"
    (tmp_path / "file").write_text("")
    lost = Files(tmp_path / "file" / "none", "slot")
    lost.write(b"12345")
    assert lost.lost_bytes == 5
    lost.close()


async def test_a_drain_closes_once() -> None:
    output = Output()
    read, write = os.pipe()
    drain = Drain(read, "stdout", output)
    os.write(write, b"a\n")
    os.close(write)
    await until(lambda: not drain.read() and output.tail(1))
    drain.close()
    drain.close()
    assert output.read() == [Line("stdout", "a", 2)]
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(read)
