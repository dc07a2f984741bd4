"""Random workflows with random lives: the same rules under a seeded driver and under Hypothesis.

The driver is weighted so that every move of both tables is made (asserted); Hypothesis shrinks what
it finds. After every commit the world checks folding, recount and all rules between the records.
In the end nothing may be wedged: once no job, gate or pause is left, the workflow is over.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.lifecycle.event import By
from detent.lifecycle.job import Job, JobState
from detent.lifecycle.machine import Actor
from detent.lifecycle.workflow import (
    STEP,
    WORKFLOW,
    Abort,
    AddJobs,
    AddStep,
    Command,
    Condition,
    Fails,
    Flow,
    Open,
    Outlook,
    Pause,
    Policy,
    Release,
    Resume,
    StepPlan,
    StepState,
    Wait,
    WhenEmpty,
    gate_of,
    is_claimable,
    outlooks,
    stages,
)
from tests.lifecycle.workflow_world import WAITING, World

Choose = Callable[[int], int]
"""A number from 0 up to, not including, the argument."""


class Driver:
    """Takes one workflow through a random life."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.world = World(now=10_000)
        self.world.sweeps_at_once = bool(choose(2))
        self.names = 0
        self.known: dict[str, Outlook] = {}
        self.ended: str | None = None
        self._make()

    def _name(self) -> str:
        self.names += 1
        return f"s{self.names}"

    def _make(self) -> None:
        count = self.choose(6)
        plans: tuple[StepPlan, ...] = ()
        if self.choose(4) == 0 and count:
            names = [self._name() for _ in range(count)]
            plans = stages(*names, gate=[one for one in names if self.choose(4) == 0])
        else:
            for _ in range(count):
                plans = (*plans, self._plan([plan.id for plan in plans]))
        self.world.make(
            plans,
            {plan.id: self.choose(4) for plan in plans},
            draft=self.choose(3) == 0,
            allowed=1 + self.choose(2),
            profile=("jobnik", "ojs", "python")[self.choose(3)],
        )

    def _plan(self, earlier: list[str]) -> StepPlan:
        before = tuple(one for one in earlier if self.choose(2))
        usual = (Condition.SUCCESS, Condition.SUCCESS, Condition.ALWAYS)
        conditions = (*usual, Condition.FAILURE) if before else usual
        policy = Policy(
            tuple(Fails)[self.choose(2)],
            conditions[self.choose(len(conditions))],
            tuple(WhenEmpty)[self.choose(2)],
            gate=self.choose(4) == 0,
        )
        return StepPlan(self._name(), before, policy)

    # --- one move -----------------------------------------------------------------------

    def move(self) -> None:
        self.world.now += self.choose(40) - 10
        moves = [self._claim] * 6 + [self._end] * 6 + [self._steer] * 4 + [self._grow]
        moves += [self._gate] * 2 + [self._call_off, self._give_back, self.world.sweep]
        moves[self.choose(len(moves))]()
        self.look()

    def _some(self, jobs: list[Job]) -> Job | None:
        return jobs[self.choose(len(jobs))] if jobs else None

    def _claim(self) -> None:
        job = self._some(self.world.claimable())
        if job is not None:
            assert job.step is not None
            self.world.claim(job.step)

    def _end(self) -> None:
        job = self._some(self.world.running())
        if job is not None:
            self.world.report(job, good=self.choose(5) > 0)

    def _give_back(self) -> None:
        job = self._some(self.world.running())
        if job is not None:
            (self.world.lose, self.world.hand_back)[self.choose(2)](job)

    def _call_off(self) -> None:
        live = [job for job in self.world.jobs.values() if job.ended_at is None]
        job = self._some(live)
        if job is not None and self.choose(3) == 0:
            self.world.cancel(job)

    def _steer(self) -> None:
        commands: list[Command] = [Open(), Pause(), Resume(), Pause(), Resume()]
        if self.choose(8) == 0:
            commands.append(Abort())
        self.world.ask(commands[self.choose(len(commands))], self._someone())

    def _someone(self) -> By:
        kinds = (Actor.USER, Actor.USER, Actor.USER, Actor.SYSTEM, Actor.WORKER)
        return By(kinds[self.choose(len(kinds))], "someone")

    def _gate(self) -> None:
        steps = [*self.flow.steps, "unknown"]
        step = steps[self.choose(len(steps))]
        command = Wait(step) if self.choose(3) == 0 else Release(step)
        self.world.ask(command, self._someone())

    def _grow(self) -> None:
        steps = list(self.flow.steps)
        if self.choose(2) and steps:
            self.world.ask(AddJobs(steps[self.choose(len(steps))], 1 + self.choose(2)))
        elif self.choose(2):
            plan = self._plan(steps)
            self.world.ask(AddStep(plan, self.choose(3), after_last=bool(self.choose(2))))

    # --- what is always true ------------------------------------------------------------

    @property
    def flow(self) -> Flow:
        assert self.world.flow is not None
        return self.world.flow

    def look(self) -> None:
        flow = self.flow
        now = outlooks(flow)
        for step_id, outlook in self.known.items():
            if not outlook.is_live:
                aborted = flow.steps[step_id].state is StepState.ABORTED
                assert now[step_id] is outlook or aborted, f"{step_id} changed its verdict"
        self.known = now
        if self.ended is not None:
            assert self.ended == self.world.state, "an end is for good"
        elif self.world.state in WORKFLOW.terminal:
            self.ended = self.world.state
        for step in flow.steps.values():
            assert gate_of(flow.workflow, step).closed is not is_claimable(flow.workflow, step)

    # --- the end ------------------------------------------------------------------------

    def finish(self) -> None:
        """Take away every gate and pause, run everything, and see that nothing is wedged."""
        if self.world.state == "created":
            self.world.ok(Open())
        elif self.world.state == "paused":
            self.world.ok(Resume())
        while self._work() or self._release():
            self.look()
        self.world.sweep()
        self.look()
        self._nothing_is_wedged()

    def _work(self) -> bool:
        if job := self._some(self.world.running()):
            self.world.report(job, good=self.choose(4) > 0)
            return True
        if job := self._some(self.world.claimable()):
            assert job.step is not None
            self.world.claim(job.step)
            return True
        return False

    def _release(self) -> bool:
        found = outlooks(self.flow)
        for step in self.flow.steps.values():
            if step.state is StepState.WAITING and found[step.id] is Outlook.READY:
                self.world.ok(Release(step.id))
                return True
        return False

    def _nothing_is_wedged(self) -> None:
        holding = [
            step
            for step in self.flow.steps.values()
            if step.state is StepState.PENDING
            and step.policy.when_empty is WhenEmpty.WAIT
            and not self.flow.tally(step.id).total
        ]
        if self.flow.steps and not holding:
            assert self.world.state in WORKFLOW.terminal, (self.world.state, self.world.states())
            assert all(job.ended_at is not None for job in self.world.jobs.values())
        for job in self.world.jobs.values():
            live = job.state in WAITING or job.state is JobState.ACTIVE
            assert not live or self.known[str(job.step)].is_live

    def triples(self) -> set[tuple[str, str | None, str, str | None]]:
        return {
            (kind, event.source, event.name, event.target)
            for (kind, _), events in self.world.histories.items()
            for event in events
        }


def live(choose: Choose, moves: int) -> Driver:
    driver = Driver(choose)
    for _ in range(moves):
        driver.move()
    driver.finish()
    return driver


@pytest.mark.slow
def test_a_thousand_seeded_lives_break_nothing_and_make_every_move_of_both_tables() -> None:
    made: set[tuple[str, str | None, str, str | None]] = set()
    ends: set[str] = set()
    for seed in range(1_000):
        chance = random.Random(seed)
        driver = live(chance.randrange, moves=chance.randrange(5, 60))
        made |= driver.triples()
        ends.add(driver.world.state)
    tables = (WORKFLOW, STEP)
    assert made == {(one.name, *triple) for one in tables for triple in one.triples}
    assert ends >= WORKFLOW.terminal


@settings(max_examples=150, deadline=None)
@given(data=st.data(), moves=st.integers(min_value=0, max_value=25))
def test_any_life_of_any_graph_keeps_every_rule_and_is_never_wedged(
    data: st.DataObject, moves: int
) -> None:
    live(lambda below: data.draw(st.integers(0, below - 1)), moves)


@settings(max_examples=100, deadline=None)
@given(outcomes=st.lists(st.booleans(), min_size=1, max_size=8))
def test_ordered_stages_run_one_by_one_up_to_the_first_failure(outcomes: list[bool]) -> None:
    names = [str(place) for place in range(len(outcomes))]
    world = World().make(stages(*names))
    for name, good in zip(names, outcomes, strict=True):
        if world.state == "failed":
            break
        assert [job.step for job in world.claimable()] == [name]
        world.run(name, good=good)
    assert world.state == ("completed" if all(outcomes) else "failed")
    done = outcomes.index(False) if False in outcomes else len(outcomes)
    assert list(world.states().values()) == [
        *["completed"] * done,
        *["failed"] * (done < len(outcomes)),
        *["created"] * (len(outcomes) - done - 1),
    ]
