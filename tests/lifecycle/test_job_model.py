"""Random lives keep every promise, and together they use every edge and amendment there is."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from detent.lifecycle.job import JOB
from tests.lifecycle.driver import live


@given(rng=st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_hypothesis_finds_no_life_that_breaks_a_promise(rng: Random) -> None:
    """The shrinking twin of the seeded driver below: the same rules, smaller counterexamples."""
    live(rng, Counter(), steps=40)


def test_seeded_lives_use_every_triple_of_the_machine() -> None:
    """A model test that never reaches an edge proves nothing about it, so reaching is asserted."""
    seen: Counter[tuple[str | None, str, str | None]] = Counter()
    for seed in range(2_000):
        live(Random(seed), seen, steps=60)
    assert set(seen) == JOB.triples, f"never reached: {sorted(map(str, JOB.triples - set(seen)))}"
