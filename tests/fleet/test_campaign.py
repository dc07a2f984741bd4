"""Two workers and their supervisor are killed at random moments, while they work.

`make campaign` runs the whole of it; `DETENT_CAMPAIGN_SEED` names one that was seen before.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from detent import Handle
from detent.host import children, pids
from detent.lifecycle.event import Event
from detent.runtime.supervisor.journal import Journal
from tests.fleet.diaries import judge_diary
from tests.fleet.yard import Yard, outlast
from tests.waiting import eventually

pytestmark = pytest.mark.slow
OPTIONS = ("--workers", "2", "--slots", "6", "--sync-slots", "4", "--grace", "10s")
TYPES = ("inside", "inside", "threaded", "apart")
ENDS = ("complete", "cancel", "discard")
_US = 1_000_000
_SPARED = 0.75
"""How many fleets may come up before the next kill; the others may die while they start."""


class Scale(NamedTuple):
    jobs: int
    kills: int
    patience_s: float


SCALES = {"full": Scale(2_000, 60, 900.0), "sample": Scale(60, 3, 180.0)}


@pytest.fixture
def program() -> str:
    return "diary.txt"


class Killer:
    """Kills by chance, and begins another fleet whenever there is none."""

    def __init__(self, yard: Yard, chance: random.Random) -> None:
        self.yard = yard
        self.chance = chance
        self.kills: Counter[str] = Counter()
        self.at: list[tuple[float, str]] = []
        self.fleet = yard.begin(*OPTIONS)

    def kill(self) -> None:
        """Somebody of the tree: the supervisor, a worker, or what runs one job for a worker."""
        workers = [pid for pid in children(self.fleet.pid) if pid in self.yard.processes()]
        pools = [pid for worker in workers for pid in children(worker)]
        what = self.chance.choices(("supervisor", "worker", "pool"), (30, 60, 10))[0]
        if what == "supervisor":
            self.kill_supervisor()
        elif found := workers if what == "worker" else pools:
            self._kill(self.chance.choice(found), what)

    def kill_supervisor(self) -> None:
        self._kill(self.fleet.pid, "supervisor")
        self.fleet.wait()
        self.fleet = self.yard.begin(*OPTIONS)
        if self.chance.random() < _SPARED:
            eventually(lambda: self.yard.is_up(self.fleet), "the next fleet comes up")

    def _kill(self, pid: int, what: str) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.at.append((time.time(), what))
        self.kills[what] += 1

    @property
    def counted(self) -> int:
        return self.kills["supervisor"] + self.kills["worker"]


@pytest.mark.parametrize("size", ["sample", pytest.param("full", marks=pytest.mark.campaign)])
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_nothing_is_lost_or_doubled_whoever_is_killed(yard: Yard, store: str, size: str) -> None:
    scale = SCALES[size]
    seed = int(os.environ.get("DETENT_CAMPAIGN_SEED") or random.SystemRandom().randrange(10**6))
    tell(f"campaign on {store}: seed {seed}, {scale}")
    chance = random.Random(seed)
    killer = Killer(yard, chance)
    handles: list[Handle[Any]] = []
    portion = -(-scale.jobs // scale.kills)
    while killer.counted < scale.kills - 1:
        due = min(portion * (killer.counted + 1), scale.jobs)
        handles += enqueued(yard, chance, len(handles), due)
        outlast(chance.uniform(0.0, 5.0))
        killer.kill()
    handles += enqueued(yard, chance, len(handles), scale.jobs)
    killer.kill_supervisor()
    eventually(
        lambda: yard.counts()["completed"] + yard.counts()["discarded"] == scale.jobs,
        "all jobs end",
        scale.patience_s,
    )
    end(yard, killer.fleet)
    judge(yard, handles, killer)


def enqueued(yard: Yard, chance: random.Random, done: int, due: int) -> list[Handle[Any]]:
    """The jobs up to that number, of any kind and length."""
    calls = [
        yard.app.jobs[chance.choice(TYPES)].bind(number, chance.randrange(20))
        for number in range(done, due)
    ]
    return yard.app.enqueue_many(calls)


def end(yard: Yard, fleet: subprocess.Popen[bytes]) -> None:
    """Stop the last fleet as one should; nothing is left of any of them."""
    eventually(lambda: yard.is_up(fleet), "the last fleet comes up")
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0, yard.log(fleet)
    eventually(lambda: relics(yard) == [], f"processes are left: {relics(yard)}")


def relics(yard: Yard) -> list[int]:
    """Every process that descends from a fleet of this yard, told by what it has inherited."""
    return [pid for pid in pids() if pid != os.getpid() and yard.has_marked(pid)]


def judge(yard: Yard, handles: Sequence[Handle[Any]], killer: Killer) -> None:
    assert yard.counts() == {"completed": len(handles)}, "none is lost, none is called poison"
    histories = yard.events_of(handles)
    for events in histories:
        names = [event.name for event in events]
        assert sum(name in ENDS for name in names) == 1, names
        assert names[-1] == "complete", names
    begun = judge_diary(yard.diary(), histories)
    instances = judge_instances(yard)
    tell(f"kills {dict(killer.kills)}, executions {begun}, instances {instances}")
    tell(recovery(histories, killer.at))
    tell(yard.detent("verify"))


def judge_instances(yard: Yard) -> int:
    """Every instance has ended, in the store as in the journal of the supervisor."""
    assert yard.workers() == []
    [directory] = (yard.folder / ".detent").iterdir()
    journal = Journal(directory)
    try:
        assert journal.unended() == []
        first, last = journal.bounds()
        assert len(journal.read(0, last)) == last - first + 1, "the journal has no gap"
    finally:
        journal.close()
    return len(yard.workers(gone=True))


def recovery(histories: Sequence[Sequence[Event]], kills: Sequence[tuple[float, str]]) -> str:
    """How long jobs were held by the dead, and then how long they waited for their turn."""
    freed: defaultdict[str, list[float]] = defaultdict(list)
    claimed: list[float] = []
    for events in histories:
        for at, event in enumerate(events):
            if event.name == "lose":
                killed, who = max(one for one in kills if one[0] * _US <= event.at)
                freed[who].append(event.at / _US - killed)
                again = next(one for one in events[at:] if one.name == "claim")
                claimed.append((again.at - event.at) / _US)
    told = [f"{who} killed to job free {spread(spans)}" for who, spans in sorted(freed.items())]
    return "; ".join([*told, f"from there to its next claim {spread(claimed)}"])


def tell(text: str) -> None:
    """What is shown of a campaign that fails, and of every one with `pytest -s`."""
    sys.stderr.write(f"{text}\n")


def spread(spans: Sequence[float]) -> str:
    if not spans:
        return "-"
    return f"{len(spans)} times, p50 {statistics.median(spans):.2f} s, max {max(spans):.2f} s"
