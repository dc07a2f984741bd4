"""Every record has a face on every surface, and no surface ever shows a move it did not declare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise, product
from random import Random
from typing import Any

import msgspec
import pytest

from detent.lifecycle import job as j
from detent.lifecycle.event import Charge, Event
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import PROFILES, Delivery, ProfileName
from detent.lifecycle.views import TELEMETRY, VIEWS, View, ViewName, view
from tests.lifecycle.driver import live
from tests.lifecycle.making import NOW, SECOND, USER

S = j.JobState
HANDS = (S.PENDING, S.ACTIVE)
PARKED = (S.SCHEDULED, S.AVAILABLE, S.RETRYABLE)
RETURNS = ("fail", "time_out", "refuse", "lose", "snooze", "hand_back")
DELIVERIES = tuple(Delivery)
SURFACES = tuple(VIEWS)


def record(state: j.JobState, **more: Any) -> j.Job:
    """A record standing in that state, with everything that its state implies."""
    attempt = more.setdefault("attempt", int(state in (*HANDS, S.RETRYABLE, S.COMPLETED)))
    held, ended = state in HANDS, state in j.JOB.terminal
    given: dict[str, Any] = {
        "tenant": "",
        "id": "job-1",
        "version": 9,
        "state": state,
        "profile": "python",
        "queue": "default",
        "priority": 0,
        "delivery": Delivery.PULL,
        "allowed": 3,
        "losses_allowed": 3,
        "created_at": NOW,
        "state_at": NOW,
        "last_at": NOW,
        "place": 1,
        "ready_at": NOW,
        "enqueued_at": None if state is S.SCHEDULED else NOW,
        "run_at": NOW if state in (S.SCHEDULED, S.RETRYABLE) else None,
        "lease": "L1" if held else None,
        "holder": "w1" if attempt else None,
        "claimed_at": NOW if attempt else None,
        "started_at": NOW if attempt and state is not S.PENDING else None,
        "ended_at": NOW if ended else None,
        "cause": "requested" if ended else None,
    }
    return j.Job(**{**given, **more})


def every_record() -> Iterator[j.Job]:
    """All that a view may look at, in all combinations, possible in one life or not."""
    ways_back = (None, *RETURNS)
    for state, delivery, held in product(S, DELIVERIES, (False, True)):
        for attempt, handed_back in ((0, 0), (1, 0), (1, 1), (3, 0), (3, 1)):
            counts = {"attempt": attempt, "handed_back": handed_back, "held": held}
            for way, previous, delay_us in product(ways_back, (None, *S), (None, 0, SECOND)):
                past = {"returned_by": way, "previous": previous, "delay_us": delay_us}
                yield record(state, delivery=delivery, **counts, **past)


@pytest.fixture(scope="module")
def records() -> list[j.Job]:
    return list(every_record())


def test_every_record_has_a_face_on_every_surface(records: list[j.Job]) -> None:
    """Total: each has one word, and only fields that the view declares, all with a value."""
    declared = {name: {field.name for field in one.fields} for name, one in VIEWS.items()}
    words = {name: {row.word for row in one.words} for name, one in VIEWS.items()}
    for job in records:
        for name in SURFACES:
            shown = view(job, name)
            assert shown.state in words[name]
            assert set(shown.fields) <= declared[name]
            assert all(type(value) in (int, str) for value in shown.fields.values())


def test_a_final_word_means_an_ended_job(records: list[j.Job]) -> None:
    for job in records:
        for one in VIEWS.values():
            if one.word(job) in one.final:
                assert job.state in j.JOB.terminal


def test_every_end_has_a_final_word_but_for_jobnik_tasks_cancelled_while_they_waited(
    records: list[j.Job],
) -> None:
    for job in records:
        if job.state in j.JOB.terminal:
            for name, one in VIEWS.items():
                waited = job.state is S.CANCELLED and job.previous not in HANDS
                kept = name == ViewName.JOBNIK and waited
                assert (one.word(job) in one.final) is not kept


def test_a_view_reads_only_the_record() -> None:
    """What is shown follows from the folded history alone: equal records, equal faces."""
    job = record(S.ACTIVE)
    copy = msgspec.convert(msgspec.to_builtins(job), j.Job)
    assert copy == job
    for name in SURFACES:
        assert view(copy, name) == view(job, name)


# --- every edge, every profile, held or not -----------------------------------------------------


def fits(source: str | None, event: str, target: str, profile: str, delivery: Delivery) -> bool:
    """Leave out what the profile or the delivery makes impossible; random lives confirm that."""
    if profile == ProfileName.REST and target == S.RETRYABLE:
        return False
    if delivery not in PROFILES[profile].deliveries:
        return False
    if event == "claim":
        return delivery is Delivery.PULL
    if event in ("dispatch", "acknowledge", "refuse") or source == S.PENDING:
        return delivery is Delivery.PUSH
    return True


def edge_cases() -> Iterator[tuple[j.Job | None, j.Job, str]]:
    """Each declared edge, applied to a record of each kind: before, after, and what happened."""
    edges = sorted((t for t in j.JOB.triples if t[2] is not None), key=str)
    for (source, event, target), profile in product(edges, PROFILES):
        assert target is not None
        for delivery, held, attempt in product(DELIVERIES, (False, True), (0, 1, 3)):
            if not fits(source, event, target, profile, delivery):
                continue
            if source is None:
                yield None, born(target, profile, delivery, held), event
                continue
            if (source in (*HANDS, S.RETRYABLE) and attempt == 0) or (
                source == S.SCHEDULED and attempt
            ):
                continue
            kind = {"profile": profile, "delivery": delivery, "held": held, "attempt": attempt}
            for way in ways_back_before(S(source), attempt):
                before = record(S(source), returned_by=way, **kind)
                yield before, j.apply(before, fact(before, event, target)), event


def ways_back_before(state: j.JobState, attempt: int) -> tuple[str | None, ...]:
    return RETURNS if attempt and state in (S.AVAILABLE, S.RETRYABLE) else (None,)


def fact(job: j.Job, event: str, target: str) -> Event:
    charged = {"fail": Charge.FAILURE, "time_out": Charge.FAILURE, "lose": Charge.BOTH}.get(event)
    return Event(
        job.tenant,
        job.id,
        job.version + 1,
        job.last_at + SECOND,
        event,
        job.state,
        target,
        Actor.SYSTEM,
        "test",
        "c1",
        cause="requested" if target in j.JOB.terminal else None,
        charged=charged,
        place=2,
        run_at=job.last_at + SECOND if target == S.RETRYABLE else None,
        delay_us=SECOND if charged and target == S.RETRYABLE else None,
        lease="L2" if target in HANDS else None,
        holder="w2" if target in HANDS else None,
    )


def born(target: str, profile: str, delivery: Delivery, held: bool) -> j.Job:
    run_at = NOW + SECOND if target == S.SCHEDULED else None
    command = j.Enqueue(id="job-1", profile=profile, delivery=delivery, run_at=run_at, held=held)
    answer = j.decide(None, command, NOW, j.Context(USER, "c1", place=1))
    assert isinstance(answer, j.Accepted)
    return answer.job


def word_of(job: j.Job | None, one: View) -> str | None:
    return None if job is None else one.word(job)


@pytest.mark.parametrize("surface", SURFACES)
def test_every_edge_is_shown_as_a_declared_move_or_as_none(surface: str) -> None:
    """All 34 edges x profiles x deliveries x held x attempts x ways back: no undeclared move."""
    one, edges = VIEWS[surface], set()
    for before, after, event in edge_cases():
        source, target = word_of(before, one), one.word(after)
        edges.add((before.state if before else None, event, after.state))
        assert one.allows(source, target, after), (source, event, target, after)
    assert edges == {triple for triple in j.JOB.triples if triple[2] is not None}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("state", [state for state in S if state not in j.JOB.terminal])
def test_holding_and_activating_are_shown_as_declared_moves(surface: str, state: S) -> None:
    one = VIEWS[surface]
    for profile, delivery in product(PROFILES, DELIVERIES):
        free = record(state, profile=profile, delivery=delivery)
        held = msgspec.structs.replace(free, held=True)
        assert one.allows(one.word(free), one.word(held), free)
        assert one.allows(one.word(held), one.word(free), free)


@pytest.mark.parametrize("surface", SURFACES)
def test_no_document_lets_a_final_word_go(surface: str) -> None:
    one = VIEWS[surface]
    extensions = [(extension.source, extension.target) for extension in one.extensions]
    for source, _ in (*one.moves, *extensions):
        assert source not in one.final
    assert not one.moves & set(extensions), "an extension repeats a move of the document"


@pytest.mark.parametrize("surface", SURFACES)
def test_an_undeclared_move_is_not_allowed(surface: str) -> None:
    one, job = VIEWS[surface], record(S.ACTIVE)
    for source in one.final:
        for target in {row.word for row in one.words} - {source}:
            assert not one.allows(source, target, job)


# --- whole lives --------------------------------------------------------------------------------


LIVES = 700


@pytest.fixture(scope="module")
def histories() -> list[list[Event]]:
    return [live(Random(seed), Counter(), steps=60).events for seed in range(LIVES)]


@pytest.fixture(scope="module")
def many_lives(histories: list[list[Event]]) -> list[list[j.Job]]:
    return [list(commits(events)) for events in histories]


def commits(events: list[Event]) -> Iterator[j.Job]:
    """The record after each commit: what readers get to see, settled."""
    job: j.Job | None = None
    for _, together in groupby(events, key=lambda event: event.command_id):
        for event in together:
            job = j.apply(job, event)
        assert job is not None
        yield job


@pytest.mark.parametrize("surface", SURFACES)
def test_random_lives_are_legal_paths(surface: str, many_lives: list[list[j.Job]]) -> None:
    """And all words and extensions are met on the way: none is declared for nothing."""
    one, words, extended = VIEWS[surface], set(), set()
    for life in many_lives:
        for before, after in pairwise([None, *life]):
            assert after is not None
            source, target = word_of(before, one), one.word(after)
            assert one.allows(source, target, after), (source, target, before, after)
            words.add(target)
            if source != target and (source, target) not in one.moves:
                extended.add((source, target))
    assert words == {row.word for row in one.words}
    assert extended == {(extension.source, extension.target) for extension in one.extensions}


def test_rest_jobs_never_go_back(many_lives: list[list[j.Job]]) -> None:
    """Pending, then running, then one of three; or an end without having run."""
    ranks = {"pending": 0, "running": 1, "success": 2, "failed": 2, "cancelled": 2}
    mine = [life for life in many_lives if life[0].profile == ProfileName.REST]
    for life in mine:
        shown = [view(job, ViewName.REST).state for job in life]
        assert [ranks[word] for word in shown] == sorted(ranks[word] for word in shown)
        assert S.RETRYABLE not in {job.state for job in life}
    assert len(mine) > LIVES / 10


def test_pushed_jobs_are_always_dispatched_before_they_run(many_lives: list[list[j.Job]]) -> None:
    for life in many_lives:
        if life[0].delivery is Delivery.PUSH:
            words = [None, *(view(job, ViewName.ENGINE).state for job in life)]
            assert ("queued", "running") not in set(pairwise(words))


def test_shown_instants_are_in_order(many_lives: list[list[j.Job]]) -> None:
    """On each surface, for every record of every life: what came earlier is not later."""
    orders = {
        ViewName.OJS: ("created_at", "enqueued_at", "completed_at"),
        ViewName.REST: ("createdAt", "startedAt", "completedAt"),
        ViewName.ENGINE: ("submittedAt", "queuedAt", "dispatchedAt", "startedAt", "completedAt"),
        ViewName.JOBNIK: ("creationTime", "startTime", "endTime"),
    }
    for job in (job for life in many_lives for job in life):
        for name, order in orders.items():
            fields = view(job, name).fields
            instants = [int(fields[field]) for field in order if field in fields]
            assert instants == sorted(instants), (name, job)


def test_the_shown_attempt_never_shrinks(many_lives: list[list[j.Job]]) -> None:
    for life in many_lives:
        shown = [int(view(job, ViewName.OJS).fields["attempt"]) for job in life]
        assert shown == sorted(shown)


def test_telemetry_is_complete_over_whole_lives(histories: list[list[Event]]) -> None:
    """One JOB_QUEUED first, one end last, and nothing unannounced between."""
    for events in histories:
        names = [TELEMETRY.get((event.name, event.target or "")) for event in events]
        told = [name for name in names if name is not None]
        ends = [name for name in told if name in ("JOB_COMPLETED", "JOB_FAILED")]
        assert told.index("JOB_QUEUED") == 0
        assert told.count("JOB_QUEUED") == 1
        assert len(ends) == any(event.target in j.JOB.terminal for event in events)
        assert told[-1:] == ends or not ends
