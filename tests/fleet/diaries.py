"""What runs wrote about themselves, held against what the store says about their jobs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from detent.lifecycle.event import Event

__all__ = ["judge_diary", "runs_of"]

Diary = Sequence[Sequence[str]]


def runs_of(diary: Diary, job: int) -> list[str]:
    """The runs of one job that have begun."""
    return [run for number, run, what in diary if what == "begin" and int(number) == job]


def judge_diary(diary: Diary, histories: Sequence[Sequence[Event]]) -> int:
    """No more runs than claims, each job once to its end at least, and never two at a time."""
    runs: defaultdict[int, list[str]] = defaultdict(list)
    ended: Counter[int] = Counter()
    for number, run, what in diary:
        job = int(number)
        if what == "begin":
            runs[job].append(run)
        else:
            assert runs[job][-1] == run, f"job {job} runs twice at the same moment"
        ended[job] += what == "end"
    for job, events in enumerate(histories):
        claims = sum(event.name == "claim" for event in events)
        assert 1 <= len(runs[job]) <= claims, (job, runs[job], claims)
        assert ended[job] >= 1, f"job {job} never came to its end"
    return sum(map(len, runs.values()))
