"""Handlers in pool processes: the same as anywhere, and whatever happens there stays there."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from detent import chain
from detent.engine import limits
from detent.errors import AppBroken, CommandNotFound, PoolBroken
from detent.runtime.ending import Raised, Told, Written
from detent.runtime.executors import pooled, processes
from detent.runtime.executors.api import Died, Rung, Stopped
from detent.runtime.executors.processes import Pool, ProcessExecutor
from detent.runtime.outcomes import Cancelled, Snooze
from tests.runtime.executors.conftest import PROGRAM
from tests.runtime.executors.desk import Desk, is_running, lines, opened, value, written
from tests.waiting import until


@pytest.mark.parametrize("name", ["add", "aadd"])
async def test_a_result_comes_back(pool: ProcessExecutor, desk: Desk, name: str) -> None:
    run = await desk.run_of(name, 1, 2)
    assert await pool.run(run) == Written("3")


async def test_it_is_another_process_and_a_warm_one(pool: ProcessExecutor, desk: Desk) -> None:
    pids = [value(await pool.run(await desk.run_of("pid"))) for _ in range(3)]
    assert os.getpid() not in pids
    assert len(set(pids)) == 1


async def test_two_jobs_at_once_are_in_two_processes(pool: ProcessExecutor, desk: Desk) -> None:
    first = await desk.run_of("polls")
    task = asyncio.create_task(pool.run(first))
    await until(lambda: lines(first))
    assert value(await pool.run(await desk.run_of("add", 1, 2))) == 3
    pool.ask(first)
    ended = await task
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, Cancelled)


async def test_everything_that_is_said_is_heard(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("talk")
    assert value(await pool.run(run)) == run.ctx.job_id
    told = {(line.text, line.level) for line in run.ctx.heard.lines}
    assert len(run.ctx.heard.lines) == len(told)
    assert told == {
        ("printed", "stdout"),
        ("half", "stdout"),
        ("wrong", "stderr"),
        ("[own] careful 7", "warning"),
        ("[own] by the way", "info"),
        ("said", "debug"),
        ("raw", "stdout"),
        ("child", "stdout"),
    }
    assert run.ctx.heard.note is not None
    assert (run.ctx.heard.note.percent, run.ctx.heard.note.text) == (40, "nearly")


async def test_threads_without_a_context_are_heard_too(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("threads")
    await pool.run(run)
    assert lines(run) == ["from a thread"]


@pytest.mark.parametrize("how", ["none", "closed", "other"])
async def test_who_takes_the_streams_away_takes_them_from_no_other(
    pool: ProcessExecutor, desk: Desk, how: str
) -> None:
    muted = value(await pool.run(await desk.run_of("mute", how)))
    run = await desk.run_of("speak")
    assert value(await pool.run(run)) == muted, "the same process, which has not died of it"
    assert lines(run) == ["heard"]


async def test_around_and_logging_work_for_coroutines(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("atalk")
    assert value(await pool.run(run)) == run.ctx.job_id
    assert lines(run) == ["printed", "[own] bad"]


async def test_secrets_are_masked_in_every_way_out(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("leak", token="tok-123")  # noqa: S106
    ended = await pool.run(run)
    assert isinstance(ended, Told)
    assert ended.message == "bad [secret]"
    assert sorted(lines(run)) == ["raw [secret]", "token is [secret]"]
    assert "tok-123" not in str(ended)


async def test_outcomes_are_the_same(pool: ProcessExecutor, desk: Desk) -> None:
    async def ended(how: str) -> object:
        return await pool.run(await desk.run_of("fail", how))

    snoozed = await ended("snooze")
    assert isinstance(snoozed, Raised)
    assert isinstance(snoozed.error, Snooze)
    assert (snoozed.error.after_us, snoozed.error.reason) == (7_000_000, "later")
    discarded, retried = await ended("discard"), await ended("retry")
    assert isinstance(discarded, Told)
    assert (discarded.code, discarded.message) == ("DISCARD", "no use")
    assert isinstance(retried, Told)
    assert (retried.after_us, retried.names[0]) == (3_000_000, "detent.runtime.outcomes.Retry")
    called_off = await ended("cancelled")
    assert isinstance(called_off, Raised)
    assert str(called_off.error) == "stopped"


@pytest.mark.parametrize(
    ("name", "how", "kind"),
    [
        ("fail", "other", "KeyError"),
        ("fail", "exit", "SystemExit"),
        ("fail", "stop", "StopIteration"),
        ("afail", "other", "KeyError"),
        ("afail", "exit", "SystemExit"),
        ("afail", "cancel", "asyncio.exceptions.CancelledError"),
    ],
)
async def test_errors_are_told_with_the_users_frames_only(
    pool: ProcessExecutor, desk: Desk, name: str, how: str, kind: str
) -> None:
    ended = await pool.run(await desk.run_of(name, how))
    assert isinstance(ended, Told)
    assert (ended.names[0], ended.code, ended.retryable) == (kind, "handler_error", None)
    assert f"in {name}" in ended.backtrace
    assert "local-secret" not in ended.backtrace
    assert "serving.py" not in ended.backtrace
    assert value(await pool.run(await desk.run_of("aadd", 1, 2))) == 3


async def test_arguments_that_do_not_fit_are_told(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("add", 1, 2)
    run.opened = type(run.opened)('{"kwargs":{"a":"x","b":1}}')
    ended = await pool.run(run)
    assert isinstance(ended, Told)
    assert (ended.code, ended.retryable) == ("bad_arguments", False)


@pytest.mark.parametrize(("what", "code"), [("object", "bad_result"), ("huge", "result_too_large")])
async def test_results_that_cannot_be(
    pool: ProcessExecutor, desk: Desk, what: str, code: str
) -> None:
    ended = await pool.run(await desk.run_of("returns", what))
    assert isinstance(ended, Told)
    assert ended.code == code


async def test_a_result_near_the_limit_crosses(pool: ProcessExecutor, desk: Desk) -> None:
    ended = await pool.run(await desk.run_of("returns", "large"))
    assert isinstance(ended, Written)
    assert json.loads(ended.text) == '"' * 7_000_000


@pytest.mark.parametrize(
    ("name", "told"), [("saves", [None, {"done": 1}]), ("asaves", {"done": 2})]
)
async def test_a_checkpoint_is_durable_when_save_returns(
    pool: ProcessExecutor, desk: Desk, name: str, told: object
) -> None:
    run = await desk.run_of(name)
    assert value(await pool.run(run)) == told
    handle = desk.app.handle(run.ctx.job_id)
    assert "checkpointed" in [event.name for event in await handle.ahistory()]


async def test_a_refused_checkpoint_is_raised_in_the_handler(
    pool: ProcessExecutor, desk: Desk
) -> None:
    run = await desk.run_of("saves")
    other = replace(run.stored, job=replace(run.stored.job, lease="another"))
    run.ctx = desk.context_of(await desk.app.bridge.reach(desk.app.engine()), other)
    ended = await pool.run(run)
    assert isinstance(ended, Told)
    assert ended.names[0] == "detent.errors.IllegalTransition"


async def test_results_of_earlier_steps_are_found(pool: ProcessExecutor, desk: Desk) -> None:
    add, collect = desk.app.jobs["add"], desk.app.jobs["collect"]
    await desk.app.astart(chain([add.bind(1, 2), add.bind(3, 4)], collect.bind("")))
    for _ in range(2):
        run = await desk.next_of("add")
        await desk.report(run, await pool.run(run))
    assert value(await pool.run(await desk.next_of("collect"))) == [4, 8]


async def test_a_step_that_there_is_not_is_refused(pool: ProcessExecutor, desk: Desk) -> None:
    ended = await pool.run(await desk.run_of("collect", "nowhere"))
    assert isinstance(ended, Told)
    assert ended.code == "bad_option"


async def test_followers_are_checked_and_handed_over(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("follows")
    assert value(await pool.run(run)) == "bad_option"
    later, soon = run.ctx.heard.calls
    now = 5_000_000_000_000_000
    assert later.ask(now).run_at == now + 60_000_000
    assert soon.ask(now).run_at is None
    assert soon.ask(now).payload == '{"args":[],"kwargs":{"a":3,"b":4}}'
    assert soon.limit() == {}


async def test_the_word_that_it_should_stop_arrives(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("polls")
    pool.ask(run)
    ended = await pool.run(run)
    assert isinstance(ended, Raised)
    assert isinstance(ended.error, Cancelled)


@pytest.mark.parametrize("name", ["sleeps", "asleeps"])
async def test_an_interruption_lets_it_clean_up(
    pool: ProcessExecutor, desk: Desk, name: str
) -> None:
    run = await desk.run_of(name)
    task = asyncio.create_task(pool.run(run))
    await until(lambda: "begun" in lines(run))
    assert pool.interrupt(run)
    assert await task == Stopped(Rung.INTERRUPTED)
    assert lines(run) == ["begun", "cleaned up"]
    assert not pool.interrupt(run)


async def test_what_ignores_everything_is_killed_with_its_children(
    pool: ProcessExecutor, desk: Desk
) -> None:
    run = await desk.run_of("stubborn")
    task = asyncio.create_task(pool.run(run))
    [told] = await until(lambda: lines(run))
    child = int(told.split()[1])
    pool.interrupt(run)
    await until(lambda: "not me" in lines(run))
    assert await pool.kill(run) is Rung.KILLED
    assert await task == Stopped(Rung.KILLED)
    await until(lambda: not is_running(child))
    dump = lines(run)[-1]
    assert "in stubborn" in dump
    assert "most recent call first" in dump


async def test_an_endless_loop_is_killed(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("spins")
    task = asyncio.create_task(pool.run(run))
    await until(lambda: lines(run))
    assert await pool.kill(run) is Rung.KILLED
    assert await task == Stopped(Rung.KILLED)
    assert "in spins" in lines(run)[-1]


@pytest.mark.parametrize(
    ("how", "cause", "number", "code"),
    [
        ("segfault", "signal", signal.SIGSEGV, None),
        ("exit", "exit", None, 7),
        ("kill", "signal", signal.SIGKILL, None),
        ("abort", "signal", signal.SIGABRT, None),
    ],
)
async def test_a_death_is_told_apart_and_hurts_nobody_else(
    pool: ProcessExecutor, desk: Desk, how: str, cause: str, number: int | None, code: int | None
) -> None:
    other = await desk.run_of("polls")
    task = asyncio.create_task(pool.run(other))
    await until(lambda: lines(other))
    run = await desk.run_of("dies", how)
    ended = await pool.run(run)
    assert isinstance(ended, Died)
    assert (ended.cause, ended.signal, ended.code) == (cause, number, code)
    assert "it hurts" in ended.tail
    assert set(lines(run)) == {"last words", "it hurts"}
    if how == "segfault":
        assert "in dies" in ended.tail
    assert not task.done()
    pool.ask(other)
    await task


@pytest.mark.slow
async def test_the_pool_may_limit_memory_too(reference: str, desk: Desk) -> None:
    async with opened(ProcessExecutor(reference, Pool(memory_bytes=100_000_000))) as own:
        ended = await own.run(await desk.run_of("takes", 1_000_000_000))
        assert isinstance(ended, Told)
        assert ended.names[0] == "MemoryError"


async def test_whoever_goes_elsewhere_takes_no_program_along(
    reference: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread of the worker: no process found the program any more, and all its jobs came back."""
    path = Path(reference.partition(":")[0])
    monkeypatch.chdir(path.parent)
    async with opened(ProcessExecutor(reference.replace(str(path), path.name))) as own:
        monkeypatch.chdir("/")
        assert value(await own.run(await desk.run_of("add", 1, 2))) == 3


async def test_a_memory_hog_is_told_so(pool: ProcessExecutor, desk: Desk) -> None:
    ended = await pool.run(await desk.run_of("hogs", 1_000_000_000))
    assert isinstance(ended, Told)
    assert ended.names[0] == "MemoryError"
    assert value(await pool.run(await desk.run_of("hogs", 1_000_000))) == 1_000_000


@pytest.mark.parametrize(("by", "many"), [("print", 100_000), ("write", 1_000_000)])
async def test_a_flood_neither_blocks_nor_grows(
    pool: ProcessExecutor, desk: Desk, by: str, many: int
) -> None:
    run = await desk.run_of("floods", by, many)
    assert value(await pool.run(run)) == many
    told = lines(run)
    assert len(told) == limits.LOG_LINES_MAX + 1
    assert told[-1].startswith(f"{many - limits.LOG_LINES_MAX} more lines were dropped")


async def test_closing_the_streams_is_of_no_consequence(pool: ProcessExecutor, desk: Desk) -> None:
    assert value(await pool.run(await desk.run_of("closes"))) == "closed"
    run = await desk.run_of("talk")
    await pool.run(run)
    assert {"printed", "raw", "child", "wrong"} <= set(lines(run))


async def test_signals_that_are_meant_for_the_worker_are_left_to_it(
    pool: ProcessExecutor, desk: Desk
) -> None:
    run = await desk.run_of("signals")
    assert value(await pool.run(run)) is None
    assert lines(run) == ["still here"]


async def test_a_copy_that_returns_from_the_handler_says_nothing(
    pool: ProcessExecutor, desk: Desk
) -> None:
    assert value(await pool.run(await desk.run_of("forks", True))) > 0
    assert value(await pool.run(await desk.run_of("add", 1, 2))) == 3


async def test_a_copy_cannot_speak_for_the_original(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("copies")
    assert value(await pool.run(run)) == 5
    assert lines(run) == []


async def test_a_copy_left_behind_goes_with_its_process(reference: str, desk: Desk) -> None:
    async with opened(ProcessExecutor(reference)) as own:
        copy = value(await own.run(await desk.run_of("forks", False)))
        assert is_running(copy)
    await until(lambda: not is_running(copy))


async def test_whoever_writes_into_the_channel_is_killed(pool: ProcessExecutor, desk: Desk) -> None:
    ended = await pool.run(await desk.run_of("garbles"))
    assert isinstance(ended, Died)
    assert ended.cause == "garbled"


async def test_a_run_that_lost_a_worker_is_alone_in_its_process(
    pool: ProcessExecutor, desk: Desk
) -> None:
    warm = value(await pool.run(await desk.run_of("pid")))
    run = await desk.run_of("pid")
    run.stored = replace(run.stored, job=replace(run.stored.job, losses=1))
    alone = value(await pool.run(run))
    assert alone != warm
    await until(lambda: not is_running(alone))
    assert value(await pool.run(await desk.run_of("pid"))) == warm


async def test_waiting_runs_can_be_stopped_too(reference: str, desk: Desk) -> None:
    async with opened(ProcessExecutor(reference, Pool(most=1))) as own:
        first = await desk.run_of("polls")
        begun = asyncio.create_task(own.run(first))
        await until(lambda: lines(first))
        runs = [await desk.run_of("add", 1, 2) for _ in range(3)]
        tasks = [asyncio.create_task(own.run(run)) for run in runs]
        await asyncio.sleep(0)
        assert own.interrupt(runs[0])
        assert await own.kill(runs[1]) is Rung.KILLED
        tasks[2].cancel()
        assert await tasks[0] == Stopped(Rung.INTERRUPTED)
        assert await tasks[1] == Stopped(Rung.KILLED)
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        own.ask(first)
        assert isinstance(await begun, Raised)
        assert value(await own.run(await desk.run_of("add", 1, 2))) == 3


async def test_whoever_calls_the_run_off_ends_its_process(
    pool: ProcessExecutor, desk: Desk
) -> None:
    run = await desk.run_of("stubborn")
    task = asyncio.create_task(pool.run(run))
    [told] = await until(lambda: lines(run))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not is_running(int(told.split()[1])))


@pytest.mark.slow
@pytest.mark.parametrize("worn", [{"jobs_max": 1}, {"rss_bytes_max": 1}, {"age_s_max": 0.0}])
async def test_worn_processes_are_replaced(
    reference: str, desk: Desk, worn: dict[str, float]
) -> None:
    async with opened(ProcessExecutor(reference, Pool(**worn))) as own:  # type: ignore[arg-type]
        first, second = [value(await own.run(await desk.run_of("pid"))) for _ in range(2)]
    assert first != second
    assert not is_running(first)
    assert not is_running(second)


async def test_closing_kills_what_runs(reference: str, desk: Desk) -> None:
    own = ProcessExecutor(reference)
    run = await desk.run_of("stubborn")
    task = asyncio.create_task(own.run(run))
    [told] = await until(lambda: lines(run))
    await own.close()
    assert await task == Stopped(Rung.KILLED)
    await until(lambda: not is_running(int(told.split()[1])))


@pytest.mark.slow
async def test_a_program_that_cannot_be_imported_is_told_and_not_tried_for_ever(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nonsense_of_ours\n")
    monkeypatch.setattr(processes, "STARTS_MAX", 2)
    monkeypatch.setattr(processes, "_WAIT_S", 0.0)
    own = ProcessExecutor(str(path))
    for _ in range(2):
        assert own.broken is None
        with pytest.raises(AppBroken, match="No module named 'nonsense_of_ours'"):
            await own.run(await desk.run_of("add", 1, 2))
    path.unlink()
    assert own.broken is not None
    with pytest.raises(AppBroken):
        await own.run(await desk.run_of("add", 1, 2))


async def test_failures_are_not_tried_again_at_once(tmp_path: Path, desk: Desk) -> None:
    path = tmp_path / "ends.py"
    path.write_text("import os, sys\nsys.stderr.write('oh no\\n')\nos._exit(9)\n")
    own = ProcessExecutor(str(path))
    for _ in range(2):
        with pytest.raises(PoolBroken, match="oh no") as told:
            await own.run(await desk.run_of("add", 1, 2))
        assert told.value.fields["exit_code"] == 9
        path.unlink(missing_ok=True)
    assert own.broken is None


async def test_no_interpreter_no_process(
    reference: str, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(CommandNotFound):
        await ProcessExecutor(reference).run(await desk.run_of("add", 1, 2))


async def test_an_import_that_takes_for_ever_is_given_up(
    tmp_path: Path, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hangs.py"
    path.write_text("while True:\n    pass\n")
    monkeypatch.setattr(pooled, "START_S", 0.1)
    with pytest.raises(PoolBroken, match=r"not imported within 0\.1 s"):
        await ProcessExecutor(str(path)).run(await desk.run_of("add", 1, 2))


async def test_a_process_that_is_not_needed_before_it_has_begun_is_ended(
    tmp_path: Path, desk: Desk
) -> None:
    path, seen = tmp_path / "slow.py", tmp_path / "pid"
    begin = (
        f"import os, pathlib\npathlib.Path({str(seen)!r}).write_text(str(os.getpid()) + '\\n')\n"
    )
    path.write_text(f"{begin}while True:\n    pass\n")
    own = ProcessExecutor(str(path))
    run = await desk.run_of("add", 1, 2)
    task = asyncio.create_task(own.run(run))
    pid = int(
        await until(lambda: seen.exists() and seen.read_text().endswith("\n") and seen.read_text())
    )
    assert await own.kill(run) is Rung.KILLED
    assert await task == Stopped(Rung.KILLED)
    await own.close()
    assert not is_running(pid)


async def test_a_job_that_the_program_does_not_have(pool: ProcessExecutor, desk: Desk) -> None:
    run = await desk.run_of("add", 1, 2)
    run.stored = replace(run.stored, body=replace(run.stored.body, type="gone"))
    ended = await pool.run(run)
    assert isinstance(ended, Told)
    assert ended.code == "app_missing"


_WORKER = """
import asyncio, sys
from tests.runtime.executors.conftest import PROGRAM
from tests.runtime.executors.desk import Desk, lines
from tests.waiting import until
from detent.app.loading import load
from detent.runtime.executors.processes import ProcessExecutor

async def main():
    desk = Desk(load(sys.argv[1]))
    run = await desk.run_of(sys.argv[2])
    task = asyncio.create_task(ProcessExecutor(sys.argv[1]).run(run))
    print(*await until(lambda: lines(run)), flush=True)
    await task

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stubborn", "holds"])
def test_no_process_outlives_its_worker(tmp_path: Path, name: str) -> None:
    reference, _ = written(tmp_path, PROGRAM)
    path = os.pathsep.join(part for part in sys.path if part)
    worker = subprocess.Popen(  # noqa: S603 (our own interpreter)
        [sys.executable, "-c", _WORKER, reference, name],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert worker.stdout is not None
    child = int(worker.stdout.readline().split()[1])
    pool = int(Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[1])
    assert is_running(pool)
    worker.kill()
    worker.wait()
    worker.stdout.close()
    asyncio.run(until(lambda: not is_running(child) and not is_running(pool)))
