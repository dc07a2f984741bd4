"""What runs wrote about themselves, held against what the store says about their jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from detent.lifecycle.event import Event

__all__ = ["judge_diary", "judge_order", "runs_of"]

Diary = Sequence[Sequence[str]]


def runs_of(diary: Diary, job: int) -> list[str]:
    """The runs of one job that have begun."""
    return [run for number, run, what in diary if what == "begin" and int(number) == job]


def judge_order(diary: Diary, job: int) -> list[str]:
    """Its runs, of which no two went on at the same moment."""
    runs: list[str] = []
    for number, run, what in diary:
        if int(number) == job:
            if what == "begin":
                runs.append(run)
            assert runs[-1] == run, f"job {job} runs twice at the same moment"
    return runs


def judge_diary(diary: Diary, histories: Sequence[Sequence[Event]]) -> int:
    """No more runs than claims, each job once to its end at least, and never two at a time."""
    of_job: defaultdict[int, list[Sequence[str]]] = defaultdict(list)
    for line in diary:
        of_job[int(line[0])].append(line)
    begun = 0
    for job, events in enumerate(histories):
        runs = judge_order(of_job[job], job)
        claims = sum(event.name == "claim" for event in events)
        assert 1 <= len(runs) <= claims, (job, runs, claims)
        assert any(what == "end" for _, _, what in of_job[job]), f"job {job} never ended"
        begun += len(runs)
    return begun
