"""Backoff and breaker without a supervisor: pure, so every number can be looked at."""

from __future__ import annotations

from math import inf
from random import Random

import pytest
from msgspec.structs import replace

from detent.errors import BadSpec
from detent.runtime.supervisor import breaker as b
from detent.runtime.supervisor.backoff import Backoff, next_interval, waited
from detent.runtime.supervisor.breaker import Breaker, Circuit, Gauge
from detent.runtime.supervisor.pacing import Pacing, Rate
from detent.runtime.supervisor.spec import Probe, Recycle, Restart, Spec, StartRate
from tests.runtime.supervisor.stage import CALM, Puppet, VirtualClock


def test_intervals_grow_up_to_the_most() -> None:
    """W-53: 50 ms, doubled, at most 200 ms."""
    policy = Backoff(initial_s=0.05, most_s=0.2)
    intervals: list[float] = []
    for _ in range(4):
        last = intervals[-1] if intervals else None
        intervals.append(next_interval(policy, last, uptime_s=0))
    assert intervals == [0.05, 0.1, 0.2, 0.2]


def test_a_long_life_resets_to_the_first_interval() -> None:
    """W-54: after a reset wait the first interval, then grow."""
    policy = Backoff(initial_s=1, reset_s=60)
    assert next_interval(policy, 16, uptime_s=61) == 1
    assert next_interval(policy, 1, uptime_s=0) == 2
    assert next_interval(policy, 16, uptime_s=60) == 30


def test_jitter_lengthens_by_a_tenth_at_most() -> None:
    """W-53."""
    policy = Backoff()
    assert waited(policy, 10, 0.0) == 10
    assert waited(policy, 10, 1.0) == pytest.approx(11)


def test_defaults() -> None:
    """W-52, W-55, W-57, W-59, W-84, W-23, W-33."""
    assert Backoff() == Backoff(0.5, 30.0, 2.0, 60.0, 0.1)
    assert Breaker().cool_down_s == 300
    assert Probe() == Probe(10.0, 1.0, 3, 1)
    spec = Spec("a", Puppet)
    assert (spec.stop_grace_s, spec.init_timeout_s, spec.restart) == (10.0, 30.0, Restart.ALWAYS)


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("backoff.initial_s", lambda: Backoff(initial_s=-1)),
        ("backoff.factor", lambda: Backoff(factor=0)),
        ("backoff.most_s", lambda: Backoff(initial_s=2, most_s=1)),
        ("backoff.reset_s", lambda: Backoff(reset_s=-1)),
        ("backoff.jitter", lambda: Backoff(jitter=2)),
        ("breaker.most", lambda: Breaker(most=0)),
        ("breaker.window_s", lambda: Breaker(window_s=0)),
        ("breaker.cool_down_s", lambda: Breaker(cool_down_s=0)),
        ("breaker.cool_down_s", lambda: Breaker(cool_down_s=inf)),
        ("backoff.most_s", lambda: Backoff(most_s=inf)),
        ("backoff.factor", lambda: Backoff(factor=inf)),
        ("rate.window_s", lambda: StartRate(window_s=inf)),
        ("probe.timeout_s", lambda: Probe(timeout_s=0)),
        ("recycle.age_s", lambda: Recycle(age_s=0)),
        ("recycle.variance", lambda: Recycle(variance=1)),
        ("recycle.soft_rss_bytes", lambda: Recycle(soft_rss_bytes=2, hard_rss_bytes=1)),
        ("rate.most", lambda: StartRate(most=0)),
        ("rate.window_s", lambda: StartRate(window_s=0)),
        ("name", lambda: Spec("a/b", Puppet)),
        ("name", lambda: Spec("", Puppet)),
        ("name", lambda: Spec("a" * 65, Puppet)),
        ("stop_grace_s", lambda: Spec("a", Puppet, stop_grace_s=-1)),
        ("init_timeout_s", lambda: Spec("a", Puppet, init_timeout_s=0)),
        ("make", lambda: Spec("a", None)),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_work_is_refused_by_name(field: str, make: object) -> None:
    """W-55: validated when it is written, not when it is needed."""
    assert callable(make)
    with pytest.raises(BadSpec) as caught:
        make()
    assert caught.value.fields["field"] == field
    assert caught.value.code == "bad_spec"


def test_the_window_slides() -> None:
    """W-58: three per second; five falls within 80 ms trip it wherever the window began."""
    policy, gauge = Breaker(most=3, window_s=1), Gauge()
    for at in (0.0, 0.95, 0.97):
        gauge = b.fall(policy, gauge, at)
    assert gauge.circuit is Circuit.CLOSED
    gauge = b.fall(policy, gauge, 1.01)
    assert gauge.circuit is Circuit.CLOSED
    assert b.fall(policy, gauge, 1.02).circuit is Circuit.OPEN


def test_more_than_most_trips() -> None:
    """W-57: the fourth quick fall of three allowed."""
    policy, gauge = Breaker(most=3, window_s=1), Gauge()
    circuits = []
    for at in (0.0, 0.1, 0.2, 0.3):
        gauge = b.fall(policy, gauge, at)
        circuits.append(gauge.circuit)
    assert circuits == ["closed", "closed", "closed", "open"]


def test_a_failed_trial_opens_again_and_a_good_one_closes() -> None:
    """W-59."""
    policy = Breaker(most=3, window_s=1)
    half = b.half_open(replace(Gauge(), circuit=Circuit.OPEN))
    assert b.fall(policy, half, 5).circuit is Circuit.OPEN
    assert b.close(half) == Gauge()


def test_restarts_in_all_and_in_the_window() -> None:
    """W-60: both are known."""
    clock = VirtualClock()
    pacing = Pacing(CALM, Breaker(most=9, window_s=10), clock, Random(1))
    pacing.fell(0)
    clock._mono += 11  # noqa: SLF001 - our own
    pacing.fell(0)
    assert (pacing.total, pacing.in_window) == (2, 1)


def test_the_rate_lets_so_many_through() -> None:
    """Section 22: a start-rate slot."""
    clock = VirtualClock()
    rate = Rate(StartRate(most=2, window_s=5), clock)
    rate.took()
    clock._mono += 1  # noqa: SLF001 - our own
    rate.took()
    held = rate.held()
    assert held is not None
    assert (held.governor, held.due) == ("rate", 105.0)
    clock._mono = 105.0  # noqa: SLF001 - our own
    assert rate.held() is None


def test_a_breaker_that_was_closed_counts_from_nothing() -> None:
    """W-59."""
    assert b.close(Gauge(Circuit.OPEN, (1.0, 2.0))).falls == ()


def test_a_reset_begins_with_the_first_wait() -> None:
    """W-59: by hand."""
    pacing = Pacing(CALM, None, VirtualClock(), Random(1))
    assert [pacing.fell(0), pacing.fell(0)] == [1, 2]
    pacing.reset()
    assert pacing.held() is None
    assert pacing.fell(0) == 1


def test_only_a_trial_closes_a_breaker() -> None:
    """W-59: one that was ready before it opened, and goes on, proves nothing."""
    pacing = Pacing(CALM, Breaker(most=1), VirtualClock(), Random(1))
    pacing.fell(0)
    pacing.fell(0)
    assert not pacing.prospered()
    assert pacing.tried()
    assert pacing.prospered()
