"""The retry policy: every rule of the decision, and every delay within its bounds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detent.errors import BadPolicy
from detent.lifecycle.retry import (
    ErrorInfo,
    Exhaustion,
    RetryPolicy,
    Strategy,
    Verdict,
    allowed,
    delay_us,
    judge,
    total_end,
    within,
)

YEAR_US = 366 * 24 * 3600 * 1_000_000
ALMOST_ONE = 1.0 - 2.0**-53
PLAIN = ErrorInfo(code="handler_error")

jitters = st.floats(min_value=0.0, max_value=1.0, exclude_max=True)
counts = st.integers(min_value=1, max_value=10_000) | st.integers(min_value=1, max_value=10**400)


@st.composite
def policies(draw: st.DrawFn, *, jitter: bool | None = None) -> RetryPolicy:
    initial_us = draw(st.integers(min_value=1, max_value=YEAR_US))
    return RetryPolicy(
        max_attempts=draw(st.integers(min_value=0, max_value=100_000)),
        initial_us=initial_us,
        coefficient=draw(st.floats(min_value=1.0, max_value=1_000.0)),
        max_us=draw(st.integers(min_value=initial_us, max_value=YEAR_US)),
        jitter=draw(st.booleans()) if jitter is None else jitter,
        strategy=draw(st.sampled_from(Strategy)),
    )


def steady(**changes: Any) -> RetryPolicy:
    """A policy without jitter whose cap is out of the way."""
    return RetryPolicy(**{"jitter": False, "max_us": YEAR_US, **changes})


class TestPolicy:
    def test_the_defaults_are_three_runs_with_doubling_delays_up_to_five_minutes(self) -> None:
        assert RetryPolicy() == RetryPolicy(
            max_attempts=3,
            initial_us=1_000_000,
            coefficient=2.0,
            max_us=300_000_000,
            jitter=True,
            non_retryable=(),
            on_exhaustion=Exhaustion.DISCARD,
            strategy=Strategy.EXPONENTIAL,
        )

    @pytest.mark.parametrize(
        ("field", "good"),
        [
            ("max_attempts", 0),
            ("max_attempts", 100_000),
            ("initial_us", 1),
            ("max_us", 1_000_000),
            ("max_us", YEAR_US),
            ("coefficient", 1),
            ("coefficient", 1.0),
            ("coefficient", 1_000.0),
            ("non_retryable", ("x",) * 100),
            ("non_retryable", ("x" * 256,)),
        ],
    )
    def test_the_limits_themselves_are_allowed(self, field: str, good: Any) -> None:
        assert getattr(RetryPolicy(**{field: good}), field) == good

    @pytest.mark.parametrize(
        ("field", "bad"),
        [
            ("max_attempts", -1),
            ("max_attempts", 100_001),
            ("max_attempts", True),
            ("max_attempts", 2.0),
            ("max_attempts", "3"),
            ("initial_us", 0),
            ("initial_us", 1.5),
            ("max_us", 0),
            ("max_us", 999_999),
            ("max_us", YEAR_US + 1),
            ("coefficient", 0.99),
            ("coefficient", 1_000.1),
            ("coefficient", 10**400),
            ("coefficient", float("nan")),
            ("coefficient", float("inf")),
            ("coefficient", True),
            ("coefficient", "2"),
            ("jitter", 1),
            ("jitter", None),
            ("non_retryable", ["auth.*"]),
            ("non_retryable", "auth.*"),
            ("non_retryable", ("x",) * 101),
            ("non_retryable", ("",)),
            ("non_retryable", ("x" * 257,)),
            ("non_retryable", (7,)),
            ("on_exhaustion", "bury"),
            ("strategy", "exponential"),
        ],
    )
    def test_an_impossible_value_names_its_field_and_a_remedy(self, field: str, bad: Any) -> None:
        with pytest.raises(BadPolicy) as caught:
            RetryPolicy(**{field: bad})
        fields = caught.value.fields
        assert fields["field"] == field
        assert fields["value"] in repr(bad)
        assert len(fields["value"]) <= 100
        assert caught.value.message == (
            f"retry policy: {field} cannot be {fields['value']}; {fields['remedy']}."
        )

    @pytest.mark.parametrize(
        ("field", "bad", "remedy"),
        [
            ("max_attempts", -1, "use a whole number from 0 to 100000"),
            ("initial_us", 0, f"use a whole number from 1 to {YEAR_US}"),
            ("max_us", 0, f"use a whole number from 1 to {YEAR_US}"),
            ("max_us", 5, "raise it to at least initial_us (1000000) or lower initial_us"),
            ("coefficient", 0.5, "use a finite number from 1.0 to 1000.0"),
            ("jitter", None, "use True or False"),
            ("on_exhaustion", "bury", "use Exhaustion.DISCARD or Exhaustion.DEAD_LETTER"),
            (
                "strategy",
                "linear",
                (
                    "use Strategy.EXPONENTIAL or Strategy.LINEAR"
                    " or Strategy.CONSTANT or Strategy.POLYNOMIAL"
                ),
            ),
            (
                "non_retryable",
                [],
                "use a tuple of at most 100 error types; a prefix with .* covers many",
            ),
            ("non_retryable", ("",), "use an error type of 1 to 256 characters"),
        ],
    )
    def test_the_remedy_says_what_to_write_instead(self, field: str, bad: Any, remedy: str) -> None:
        with pytest.raises(BadPolicy) as caught:
            RetryPolicy(**{field: bad})
        assert caught.value.fields["remedy"] == remedy

    @given(policies())
    def test_a_policy_survives_json(self, policy: RetryPolicy) -> None:
        assert msgspec.json.decode(msgspec.json.encode(policy), type=RetryPolicy) == policy

    def test_a_stored_policy_is_checked_when_it_is_read(self) -> None:
        with pytest.raises(BadPolicy):
            msgspec.json.decode(b'{"max_attempts": -1}', type=RetryPolicy)

    @pytest.mark.parametrize(("attempts", "final"), [(0, 1), (1, 1), (2, 2), (3, 3)])
    def test_zero_and_one_attempt_both_mean_that_the_first_failure_is_final(
        self, attempts: int, final: int
    ) -> None:
        assert allowed(RetryPolicy(max_attempts=attempts)) == final


class TestDelay:
    @pytest.mark.parametrize(
        ("strategy", "coefficient", "delays"),
        [
            (Strategy.EXPONENTIAL, 2.0, [100, 200, 400, 800, 1000, 1000]),
            (Strategy.EXPONENTIAL, 1.0, [100, 100, 100, 100, 100, 100]),
            (Strategy.EXPONENTIAL, 1.5, [100, 150, 225, 337, 506, 759]),
            (Strategy.LINEAR, 9.0, [100, 200, 300, 400, 500, 600]),
            (Strategy.CONSTANT, 9.0, [100, 100, 100, 100, 100, 100]),
            (Strategy.POLYNOMIAL, 2.0, [100, 400, 900, 1000, 1000, 1000]),
            (Strategy.POLYNOMIAL, 1.0, [100, 200, 300, 400, 500, 600]),
        ],
    )
    def test_each_strategy_grows_as_declared_up_to_the_cap(
        self, strategy: Strategy, coefficient: float, delays: list[int]
    ) -> None:
        policy = steady(initial_us=100, max_us=1_000, strategy=strategy, coefficient=coefficient)
        assert [delay_us(policy, n, 0.0) for n in range(1, 7)] == delays

    @given(policies(jitter=False), st.integers(min_value=1, max_value=200), jitters)
    def test_without_jitter_it_equals_exact_arithmetic(
        self, policy: RetryPolicy, failures: int, jitter: float
    ) -> None:
        base, power = Fraction(policy.coefficient), failures - 1
        exact = {
            Strategy.CONSTANT: Fraction(1),
            Strategy.LINEAR: Fraction(failures),
            Strategy.EXPONENTIAL: base**power,
        }
        if policy.strategy in exact:
            want = min(policy.initial_us * exact[policy.strategy], Fraction(policy.max_us))
            assert abs(delay_us(policy, failures, jitter) - want) <= 1 + want / 10**12

    @given(policies(jitter=False), counts, counts)
    def test_more_failures_never_mean_a_shorter_delay(
        self, policy: RetryPolicy, one: int, other: int
    ) -> None:
        few, many = sorted((one, other))
        assert delay_us(policy, few, 0.0) <= delay_us(policy, many, 0.0)

    @given(policies(jitter=False), st.integers(min_value=1, max_value=100_000))
    def test_the_next_failure_never_means_a_shorter_delay(
        self, policy: RetryPolicy, failures: int
    ) -> None:
        assert delay_us(policy, failures, 0.0) <= delay_us(policy, failures + 1, 0.0)

    @given(policies(), counts, jitters)
    def test_it_is_whole_and_between_zero_and_the_cap(
        self, policy: RetryPolicy, failures: int, jitter: float
    ) -> None:
        delay = delay_us(policy, failures, jitter)
        assert type(delay) is int
        assert 0 <= delay <= policy.max_us

    @given(policies(jitter=True), counts, jitters | st.just(ALMOST_ONE))
    def test_jitter_spreads_it_from_half_to_below_one_and_a_half_and_caps_again(
        self, policy: RetryPolicy, failures: int, jitter: float
    ) -> None:
        bare = delay_us(msgspec.structs.replace(policy, jitter=False), failures, jitter)
        spread = delay_us(policy, failures, jitter)
        assert min(bare, policy.max_us) <= 2 * spread
        assert 2 * spread < 3 * bare
        assert abs(spread - min(bare * (0.5 + jitter), policy.max_us)) <= 1

    @pytest.mark.parametrize(
        ("jitter", "delay"), [(0.0, 1_000), (0.5, 2_000), (0.999, 2_998), (ALMOST_ONE, 2_999)]
    )
    def test_two_seconds_are_spread_between_one_and_three(self, jitter: float, delay: int) -> None:
        policy = RetryPolicy(initial_us=2_000)
        assert delay_us(policy, 1, jitter) == delay

    def test_jitter_does_not_lift_a_capped_delay_over_the_cap(self) -> None:
        assert delay_us(RetryPolicy(initial_us=10, max_us=10), 1, 0.9) == 10

    @pytest.mark.parametrize("strategy", Strategy)
    @pytest.mark.parametrize("failures", [2**53, 2**64, 10**400])
    def test_numbers_beyond_every_float_reach_the_cap_and_no_further(
        self, strategy: Strategy, failures: int
    ) -> None:
        policy = steady(coefficient=1_000.0, strategy=strategy)
        want = 1_000_000 if strategy is Strategy.CONSTANT else YEAR_US
        assert delay_us(policy, failures, 0.0) == want

    def test_growth_by_one_stays_the_same_for_ever(self) -> None:
        assert delay_us(steady(coefficient=1.0), 10**400, 0.0) == 1_000_000

    def test_a_product_too_large_for_a_float_is_the_cap(self) -> None:
        policy = steady(initial_us=YEAR_US, coefficient=1_000.0)
        assert delay_us(policy, 103, 0.0) == YEAR_US

    @pytest.mark.parametrize("failures", [0, -1])
    def test_a_failure_that_was_not_counted_is_refused(self, failures: int) -> None:
        with pytest.raises(BadPolicy) as caught:
            delay_us(RetryPolicy(), failures, 0.0)
        assert caught.value.fields == {
            "field": "failures",
            "value": str(failures),
            "remedy": "count the failure being judged: at least 1",
        }

    @pytest.mark.parametrize("jitter", [-0.1, 1.0, 2.0, float("nan"), float("inf")])
    def test_a_jitter_outside_its_range_is_refused(self, jitter: float) -> None:
        with pytest.raises(BadPolicy) as caught:
            delay_us(RetryPolicy(), 1, jitter)
        assert caught.value.fields == {
            "field": "jitter",
            "value": str(jitter),
            "remedy": "hand in a number from 0 up to, not including, 1",
        }


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "kind", "matches"),
        [
            ("auth", "auth", True),
            ("auth", "auth.expired", False),
            ("auth", "Auth", False),
            ("auth.*", "auth", False),
            ("auth.*", "auth.", True),
            ("auth.*", "auth.expired", True),
            ("auth.*", "auth.token.expired", True),
            ("auth.*", "authentic", False),
            ("auth.*", "auth.*", True),
            ("auth*", "auth.expired", False),
            ("auth*", "auth*", True),
            ("*", "auth", False),
            (".*", ".hidden", True),
            (".*", "auth", False),
            ("a.*.b", "a.x.b", False),
        ],
    )
    def test_only_a_trailing_dot_star_covers_more_than_itself(
        self, pattern: str, kind: str, matches: bool
    ) -> None:
        policy = RetryPolicy(non_retryable=("other", pattern))
        verdict = judge(policy, ErrorInfo(code="c", type=kind), 1, 0.0)
        assert verdict.cause == ("not_retryable" if matches else None)

    @pytest.mark.parametrize(
        ("error", "matched"),
        [
            (ErrorInfo(code="code", type="type", error_class="class"), "type"),
            (ErrorInfo(code="code", error_class="class"), "class"),
            (ErrorInfo(code="code"), "code"),
            (ErrorInfo(code="code", type="", error_class=""), "code"),
        ],
    )
    def test_the_type_is_matched_else_the_class_else_the_code(
        self, error: ErrorInfo, matched: str
    ) -> None:
        for pattern in ("type", "class", "code"):
            verdict = judge(RetryPolicy(non_retryable=(pattern,)), error, 1, 0.0)
            assert verdict.retry is (pattern != matched)


class TestJudge:
    def test_a_failure_with_attempts_left_is_tried_again_after_its_delay(self) -> None:
        assert judge(RetryPolicy(), PLAIN, 2, 0.25) == Verdict(
            retry=True, delay_us=delay_us(RetryPolicy(), 2, 0.25), cause=None
        )

    @pytest.mark.parametrize("attempts", range(5))
    @pytest.mark.parametrize("failures", range(1, 7))
    def test_the_last_allowed_failure_is_final(self, attempts: int, failures: int) -> None:
        verdict = judge(RetryPolicy(max_attempts=attempts), PLAIN, failures, 0.5)
        assert verdict.retry is (failures < max(1, attempts))
        assert verdict.cause == (None if verdict.retry else "exhausted")
        assert (verdict.delay_us > 0) is verdict.retry

    @pytest.mark.parametrize(
        ("code", "retryable", "is_listed", "is_last"),
        list(
            product(
                ["DISCARD", "FAIL", "DEAD_LETTER", "RETRY", "other", "discard", ""],
                [None, True, False],
                [False, True],
                [False, True],
            )
        ),
    )
    def test_the_wish_comes_before_the_error_the_list_and_the_count(
        self, code: str, retryable: bool | None, is_listed: bool, is_last: bool
    ) -> None:
        """All combinations: the cause is always the strongest reason that holds."""
        policy = RetryPolicy(non_retryable=("listed",))
        kind = "listed" if is_listed else "free"
        error = ErrorInfo(code=code, type=kind, retryable=retryable)
        verdict = judge(policy, error, 3 if is_last else 2, 0.5)
        reasons = [
            (code in ("DISCARD", "FAIL"), "discard_asked"),
            (code == "DEAD_LETTER", "dead_letter_asked"),
            (retryable is False, "not_retryable"),
            (is_listed, "not_retryable"),
            (is_last, "exhausted"),
        ]
        want = next((cause for holds, cause in reasons if holds), None)
        assert verdict.cause == want
        assert verdict.retry is (want is None)
        assert (verdict.delay_us == 0) is (want is not None)

    @pytest.mark.parametrize("on_exhaustion", Exhaustion)
    def test_where_the_job_goes_afterwards_does_not_change_the_cause(
        self, on_exhaustion: Exhaustion
    ) -> None:
        policy = RetryPolicy(max_attempts=1, on_exhaustion=on_exhaustion)
        assert judge(policy, PLAIN, 1, 0.0) == Verdict(retry=False, delay_us=0, cause="exhausted")

    @given(policies(), counts, jitters)
    def test_it_either_retries_within_the_cap_or_says_why_not(
        self, policy: RetryPolicy, failures: int, jitter: float
    ) -> None:
        verdict = judge(policy, PLAIN, failures, jitter)
        assert verdict.retry is (verdict.cause is None)
        assert 0 <= verdict.delay_us <= policy.max_us


class TestTotal:
    def test_it_counts_from_the_making_of_the_job(self) -> None:
        assert total_end(RetryPolicy(total_us=5), 100) == 105
        assert total_end(RetryPolicy(), 100) is None

    @pytest.mark.parametrize(("end", "is_retried"), [(None, True), (31, True), (30, False)])
    def test_a_retry_that_begins_when_all_is_over_is_none(
        self, end: int | None, is_retried: bool
    ) -> None:
        granted = Verdict(retry=True, delay_us=10, cause=None)
        ended = Verdict(retry=False, delay_us=0, cause="exhausted")
        assert within(granted, end, 20) == (granted if is_retried else ended)

    def test_an_end_keeps_its_cause(self) -> None:
        ended = Verdict(retry=False, delay_us=0, cause="not_retryable")
        assert within(ended, 1, 20) == ended

    @pytest.mark.parametrize("total_us", [0, -1, True, 1.5, 10**18])
    def test_it_has_limits(self, total_us: Any) -> None:
        with pytest.raises(BadPolicy):
            RetryPolicy(total_us=total_us)
