"""What is stamped out is what would have been decided, for whatever was asked."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.lifecycle.job.stamping import Endings, Stamp
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import PROFILES, Deadlines
from tests.lifecycle.making import ALIVE, NOW, SECOND, USER, WORKER, active, available, take

names = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=12)
spans = st.none() | st.integers(-1, 60 * SECOND)
commands = st.builds(
    j.Enqueue,
    id=st.just("any"),
    tenant=st.sampled_from(["", "acme"]),
    profile=st.sampled_from([*PROFILES, "none"]),
    queue=names | st.just(""),
    priority=st.integers(-9, 9),
    delivery=st.sampled_from([None, "pull", "push"]),
    allowed=st.none() | st.integers(0, 9),
    losses_allowed=st.none() | st.integers(1, 9),
    held=st.booleans(),
    deadlines=st.none() | st.builds(Deadlines, spans, spans, spans),
    run_at=st.none() | st.integers(0, 2 * NOW),
    expires_at=st.none() | st.integers(0, 2 * NOW),
)


@settings(max_examples=100, deadline=None)
@given(commands, st.none() | names, names, names, st.integers(0, 2 * NOW), st.integers(0, 2**40))
def test_a_stamped_birth_is_a_decided_one(
    command: j.Enqueue, reason: str | None, name: str, command_id: str, now: int, place: int
) -> None:
    ctx = j.Context(USER, command_id, place=place, reason=reason)
    decided = j.decide(None, replace(command, id=name), now, ctx)
    stamp = Stamp.of(command, USER, reason)
    if isinstance(stamp, Stamp):
        assert stamp.born(name, command_id, now, place) == decided
        assert isinstance(decided, j.Accepted)
        assert stamp.wake_at(now) == j.next_wake(decided.job, now)
    elif isinstance(stamp, Refusal):
        assert isinstance(decided, Refusal)
    else:
        assert command.run_at is not None or command.expires_at is not None


def test_a_plain_wish_has_a_stamp_and_one_that_waits_has_none() -> None:
    assert isinstance(Stamp.of(j.Enqueue(id="a", profile="python"), USER), Stamp)
    assert Stamp.of(j.Enqueue(id="a", profile="python", run_at=NOW), USER) is None
    assert isinstance(Stamp.of(j.Enqueue(id="a", profile="python", queue=""), USER), Refusal)


standing = st.sampled_from(
    [
        active(),
        active(priority=3),
        active(wire=True, lease_us=SECOND),
        active(deadlines=Deadlines(active_us=5)),
        active(workflow="w", step="s"),
        take(active(), j.Cancel(), USER).job,
        available(),
        active(profile="ojs"),
    ]
)
ends = st.tuples(
    standing,
    names,
    st.sampled_from(["L1", "L2", "other", None]),
    st.none() | names | st.just(""),
    st.integers(-5, 5),
    st.none() | names,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(ends, min_size=1, max_size=6))
def test_completions_by_the_dozen_are_decided_ones(
    asked: list[tuple[j.Job, str, str | None, str | None, int, str | None]],
) -> None:
    endings = Endings(NOW)
    for number, (job, name, lease, digest, later, reason) in enumerate(asked):
        kept = None if job.lease is None else "L2" if number % 2 else "L1"
        moments = {"last_at": job.last_at + later, "created_at": job.created_at - number}
        one = replace(job, id=name, lease=kept, place=number, **moments)
        ctx = j.Context(WORKER, f"command-{number}", lease=ALIVE, reason=reason)
        command = j.Complete(lease=lease, digest=digest)
        decided = j.decide(one, command, NOW, ctx)
        if reason is None and endings.knows(one, command, WORKER):
            assert endings.copied(one, ctx.command_id, digest) == decided
        assert endings.decide(one, command, ctx) == decided
