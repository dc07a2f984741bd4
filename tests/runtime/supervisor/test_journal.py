"""The journal: durable, private, numbered, pruned no further than its readers have come."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from detent.errors import BadJournal, JournalLocked
from detent.lifecycle import worker as w
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.worker import Accepted, Birth, Instance, Order, WorkerState, fold
from detent.runtime.supervisor.body import Born
from detent.runtime.supervisor.entries import Note, SlotRow
from detent.runtime.supervisor.events import Gap, Start, with_gaps
from detent.runtime.supervisor.journal import Journal
from detent.runtime.supervisor.recovery import recover
from tests.runtime.supervisor.stage import Stage
from tests.runtime.supervisor.test_illegal import walk
from tests.runtime.supervisor.test_restarting import live

_S = WorkerState


def order(now: int = 1) -> Order:
    return Order(now, By(Actor.SYSTEM, "test"), "c")


def born(journal: Journal, name: str, slot: str = "a") -> Instance:
    made = w.create(Birth(name, slot), order())
    assert isinstance(made, Accepted)
    journal.append(made.instance, made.events, 1.0)
    return made.instance


def ended(journal: Journal, name: str) -> None:
    gone = w.stop(born(journal, name), order(2))
    assert isinstance(gone, Accepted)
    journal.append(gone.instance, gone.events, 2.0)


def test_only_its_owner_may_read_it(journal: Journal) -> None:
    directory = journal.directory
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for name in ("journal.sqlite", "lock"):
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600


def test_it_is_synced_at_every_commit(journal: Journal) -> None:
    """W-116: 2 is FULL."""
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)  # noqa: SLF001
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)  # noqa: SLF001


def test_a_second_supervisor_is_refused_by_the_pid_of_the_first(journal: Journal) -> None:
    with pytest.raises(JournalLocked) as caught:
        Journal(journal.directory)
    assert caught.value.fields["pid"] == os.getpid()
    journal.close()
    Journal(journal.directory).close()


def test_a_disk_without_room_for_the_lock_is_told_as_ours(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(BadJournal, match=str(tmp_path)):
            Journal(tmp_path / "d")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    Journal(tmp_path / "d").close()


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """Real kill -9."""
    code = (
        "import sys, pathlib\n"
        "from detent.runtime.supervisor.journal import Journal\n"
        "journal = Journal(pathlib.Path(sys.argv[1]))\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", code, str(tmp_path / "d")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(JournalLocked) as caught:
            Journal(tmp_path / "d")
        assert caught.value.fields["pid"] == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    Journal(tmp_path / "d").close()


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadJournal, match="cannot be used"):
        Journal(tmp_path / "file" / "below")


def test_a_disk_without_room_for_the_file_is_told_as_ours(tmp_path: Path) -> None:
    """Whatever the system says no to, it is the journal that cannot be used."""
    (tmp_path / "journal.sqlite").symlink_to("/proc/nothing/here")
    with pytest.raises(BadJournal):
        Journal(tmp_path)


def test_a_damaged_file_and_a_newer_one(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"this is no database at all" * 100)
    with pytest.raises(BadJournal, match="move a damaged file away"):
        Journal(tmp_path)
    (tmp_path / "journal.sqlite").unlink()
    with sqlite3.connect(tmp_path / "journal.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(BadJournal, match="newer"):
        Journal(tmp_path)
    # A refusal lets go of the lock.
    (tmp_path / "journal.sqlite").unlink()
    Journal(tmp_path).close()


@pytest.mark.parametrize("body", ["x'00ff'", "'{}'", "replace(body, 'create', 'ready')"])
def test_an_entry_that_is_no_entry_any_more(journal: Journal, body: str) -> None:
    """Bytes that rotted, another shape, and a move that cannot be."""
    born(journal, "i1")
    with sqlite3.connect(journal.directory / "journal.sqlite") as db:
        db.execute(f"UPDATE entry SET body = {body}")  # noqa: S608 - ours
    db.close()
    with pytest.raises(BadJournal, match="move a damaged file away"):
        journal.unended()


def test_entries_are_read_by_cursor_and_fold_to_the_record(journal: Journal) -> None:
    """W-89, W-116: wall and monotonic time, numbered without a hole."""
    ended(journal, "i1")
    journal.note(Note("a", "removed"), 3, 3.0)
    entries = journal.read(0)
    assert [one.seq for one in entries] == [1, 2, 3, 4]
    assert [(one.at, one.mono) for one in entries] == [(1, 1.0), (2, 2.0), (2, 2.0), (3, 3.0)]
    assert [one.seq for one in journal.read(2, 1)] == [3]
    record = fold(journal.history("i1"))
    assert record == journal.last_of("a")
    assert entries[-1].note == Note("a", "removed")


def test_a_move_that_was_written_cannot_be_written_again(journal: Journal) -> None:
    """The version fence: two writers of one instance cannot both win."""
    made = w.create(Birth("i1", "a"), order())
    assert isinstance(made, Accepted)
    journal.append(made.instance, made.events, 1.0)
    with pytest.raises(BadJournal, match="UNIQUE"):
        journal.append(made.instance, made.events, 1.0)
    assert len(journal.read(0)) == 1


def test_slots_are_kept(journal: Journal) -> None:
    """W-74."""
    row = SlotRow("a", "resume-1", 3, True)
    journal.put_slot(row)
    assert journal.slot("a") == row
    journal.drop_slot("a")
    assert journal.slot("a") is None


def test_pruning_stops_at_the_shipped_cursor(tmp_path: Path) -> None:
    """Bounded, but never beyond what was shipped."""
    journal = Journal(tmp_path, kept=2)
    assert journal.cursor("store") == 0
    for number in range(5):
        ended(journal, f"i{number}")
    assert journal.prune() == 0
    assert len(journal.read(0)) == 15
    journal.move_cursor("store", 6)
    journal.move_cursor("store", 3)
    assert journal.cursor("store") == 6
    assert journal.prune() == 0
    journal.move_cursor("store", 15)
    assert journal.prune() == 3
    assert journal.bounds() == (10, 15)
    journal.close()


def test_without_readers_only_the_newest_are_kept(tmp_path: Path) -> None:
    journal = Journal(tmp_path, kept=2)
    born(journal, "alive", "b")
    for number in range(20):
        ended(journal, f"i{number}")
    assert len({one.instance for one in journal.read(0)}) <= 5
    assert [one.id for one in journal.unended()] == ["alive"]
    kinds = list(with_gaps(0, journal.read(0)))
    gaps = [one for one in kinds if isinstance(one, Gap)]
    assert gaps
    assert gaps[0].first == 2
    journal.close()


def test_a_dump_is_cut(journal: Journal) -> None:
    journal.keep_dump("i", "x" * 2_000_000)
    assert len(journal.dump_of("i") or "") == 1_000_000
    assert journal.dump_of("j") is None


class Graveyard:
    """Which processes still exist, and which were forced."""

    def __init__(self, *alive: int, boot: str = "boot 1") -> None:
        self.boot = boot
        self.alive = set(alive)
        self.forced: list[int] = []

    def is_alive(self, born: Born) -> bool:
        return born.pid in self.alive

    async def force(self, born: Born) -> None:
        self.forced.append(born.pid)
        self.alive.discard(born.pid)


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        (_S.CREATED, ["pending", "stopped"]),
        (_S.PENDING, ["stopped"]),
        (_S.STARTING, ["failed"]),
        (_S.RUNNING, ["failed"]),
        (_S.SUSPENDED, ["running", "failed"]),
        (_S.STOPPING, ["failed"]),
    ],
)
async def test_what_a_dead_supervisor_left_open_is_lost(
    stage: Stage, state: WorkerState, ends: list[str]
) -> None:
    """K5."""
    one = await walk(stage, state)
    before = stage.states(one.id)
    (lost,) = await recover(stage.tree, Graveyard())
    assert stage.states(one.id) == [*before, *ends]
    assert lost.cause == "lost"
    assert await recover(stage.tree, Graveyard()) == []


async def test_a_kill_that_was_ordered_ends_as_killed(stage: Stage) -> None:
    """K5: the order was logged, so that is what happened."""
    one = await walk(stage, _S.STOPPING)
    one.move(w.order_kill)
    (lost,) = await recover(stage.tree, None)
    assert (lost.state, lost.cause) == (_S.KILLED, "lost")


async def test_what_still_lives_is_forced_after_the_order_is_written(stage: Stage) -> None:
    """K5, W-117: by pid and birth."""
    supervisor = await stage.running(stage.spec("a"))
    one = live(supervisor, "a")
    assert one.record.pid is not None
    graves = Graveyard(one.record.pid)
    (lost,) = await recover(stage.tree, graves)
    assert graves.forced == [one.record.pid]
    assert [event.name for event in stage.journal.history(one.id)][-3:] == [
        *("stop", "kill_ordered", "kill")
    ]
    assert lost.state is _S.KILLED


async def test_after_a_reboot_nothing_is_forced(stage: Stage) -> None:
    """W-117: births count from the boot, so after another one they are somebody else's."""
    stage.journal.is_of_boot("boot 1")
    supervisor = await stage.running(stage.spec("a"))
    pid = live(supervisor, "a").record.pid
    assert pid is not None
    graves = Graveyard(pid, boot="boot 2")
    (lost,) = await recover(stage.tree, graves)
    assert (graves.forced, lost.state) == ([], _S.FAILED)


async def test_the_next_supervisor_takes_over(stage: Stage) -> None:
    """W-71, W-72, W-74: same resume id, counted attempts, what happened to the one before."""
    await stage.running(stage.spec("a"))
    first = stage.last("a").handover
    again = await stage.running(stage.spec("a"))
    second = stage.last("a").handover
    assert first is not None
    assert second is not None
    assert [one.slot for one in again.lost] == ["a"]
    assert second.resume_id == first.resume_id
    assert (first.attempt, second.attempt) == (1, 2)
    assert (first.prev_status, second.prev_status, second.prev_cause) == (None, "Failed", "lost")
    assert second.environment()["LIFECYCLE_PREV_CAUSE"] == "lost"
    assert "LIFECYCLE_PREV_EXIT" not in first.environment()


async def test_a_full_disk_is_waited_for(stage: Stage) -> None:
    """W-20: an end that cannot be written down is heard by nobody until it can."""
    supervisor = await stage.running(stage.spec("a"))
    one = live(supervisor, "a")
    stage.journal._db.execute("PRAGMA query_only = ON")  # noqa: SLF001 - as a full disk would
    stage.last("a").die(w.Exit.of_process(3))
    await stage.clock.advance(3)
    assert not one.done.done()
    assert one.record.state == "running"
    stage.journal._db.execute("PRAGMA query_only = OFF")  # noqa: SLF001
    await stage.clock.advance(3)
    assert one.state is _S.FAILED
    assert live(supervisor, "a").state is _S.RUNNING


async def test_a_start_and_a_stop_wait_for_a_full_disk(stage: Stage) -> None:
    """W-20: nothing is done that is not written, and nothing is forgotten."""
    supervisor = await stage.running(stage.spec("a"))
    db = stage.journal._db  # noqa: SLF001 - as a full disk would
    stage.last("a").die(w.Exit.of_process(3))
    await stage.clock.settle()
    db.execute("PRAGMA query_only = ON")
    await stage.clock.advance(5)
    assert [one.told for one in stage.puppets["a"][1:]] == [[]]
    with pytest.raises(BadJournal):
        await supervisor.stop_slot("a")
    stopping = asyncio.ensure_future(supervisor.stop())
    await stage.clock.advance(2)
    assert not stopping.done()
    db.execute("PRAGMA query_only = OFF")
    await stage.during(stopping, 10)
    assert stage.journal.unended() == []


@pytest.mark.parametrize(
    ("obeys_in", "told", "forced"),
    [(3.0, ["ask 5", "died"], False), (None, ["ask 5", "force", "died"], True)],
)
async def test_a_stop_on_a_disk_that_stays_full_ends_all_the_same(
    stage: Stage, obeys_in: float | None, told: list[str], forced: bool
) -> None:
    """W-101: it drains unwritten; beyond the budget it is forced; the next one finds it lost."""
    supervisor = await stage.running(stage.spec("a", {"obeys_in": obeys_in}))
    stage.journal._db.execute("PRAGMA query_only = ON")  # noqa: SLF001 - as a full disk would
    await stage.during(supervisor.stop(5), 30)
    assert stage.last("a").told[1:] == told
    assert supervisor.is_forced is forced
    stage.journal._db.execute("PRAGMA query_only = OFF")  # noqa: SLF001
    (lost,) = await recover(stage.tree, None)
    assert lost.cause == "lost"


async def test_a_slow_follower_loses_nothing_and_a_late_one_replays(stage: Stage) -> None:
    """W-66, W-88, W-89, behaviours 14 and 23: a snapshot, then every entry; then forgotten."""
    supervisor = await stage.running(stage.spec("a"))
    slow = supervisor.watch()
    start = await anext(slow)
    assert isinstance(start, Start)
    assert start.snapshot.children[0].status == "Running"
    await stage.during(supervisor.stop())
    heard = [await anext(slow) for _ in range(2)]
    targets = [one.event.target for one in heard if not isinstance(one, Start | Gap) and one.event]
    assert targets == ["stopping", "stopped"]
    assert stage.tree.listeners == 1
    await slow.aclose()  # type: ignore[attr-defined]
    assert stage.tree.listeners == 0
    waiting = supervisor.watch()
    await anext(waiting)
    news = asyncio.ensure_future(anext(waiting))
    await stage.clock.settle()
    assert not news.done()
    supervisor.reset("a")
    heard_last = await stage.during(news)
    assert heard_last.note.name == "breaker_reset"
    await waiting.aclose()  # type: ignore[attr-defined]
    late = supervisor.watch(0)
    await anext(late)
    first = await anext(late)
    assert not isinstance(first, Start | Gap)
    assert first.seq == 1
    await late.aclose()  # type: ignore[attr-defined]


async def test_a_cursor_of_another_journal_hides_nothing(stage: Stage) -> None:
    """W-89: a folder that was deleted begins with 1 again; up to the old number all was silence."""
    supervisor = await stage.running(stage.spec("a"))
    last = stage.journal.bounds()[1]
    following = supervisor.watch(last + 1_000)
    start = await anext(following)
    assert isinstance(start, Start)
    assert start.seq == last
    supervisor.reset("a")
    news = await stage.during(anext(following))
    assert news.seq == last + 1
    await following.aclose()  # type: ignore[attr-defined]
