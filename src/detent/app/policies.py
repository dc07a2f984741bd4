"""Options that are values of their own: `Backoff`, `Limit` and `Unique`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from detent.app.checking import is_names, is_span, is_whole, need
from detent.engine.asks import OnConflict
from detent.errors import BadOption
from detent.lifecycle.job.table import JobState
from detent.lifecycle.retry import RetryPolicy, Strategy
from detent.runtime.ending import type_of
from detent.runtime.outcomes import Span, us_of
from detent.stores import limits as store_limits

_STATES = frozenset(JobState)


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how patiently a failed job is tried again.

    It waits `first`, then `factor` times as long each time, up to `most`; with `jitter` between
    half and one and a half of that, so that jobs which failed together do not return together.
    Errors of a class in `never`, or derived from one, are not tried again.
    """

    retries: int = 2
    first: Span = 1.0
    factor: float = 2.0
    most: Span = 300.0
    jitter: bool = True
    never: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        need("retries", self.retries, is_whole(self.retries, 0), "how often it is tried again")
        for option, span in (("first", self.first), ("most", self.most)):
            need(option, span, is_span(span), "more than 0 seconds, or a timedelta")
        is_list = not isinstance(self.never, str | type)
        need("never", self.never, is_list, "several classes of errors, like [ValueError]")

    def policy(self) -> RetryPolicy:
        """The same as a policy of the lifecycle."""
        return RetryPolicy(
            max_attempts=self.retries + 1,
            initial_us=us_of(self.first),
            coefficient=self.factor,
            max_us=max(us_of(self.most), us_of(self.first)),
            jitter=self.jitter,
            non_retryable=tuple(n if isinstance(n, str) else type_of(n) for n in self.never),
            strategy=Strategy.EXPONENTIAL,
        )


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of one key run at once, start within `per`, or how far apart they start."""

    concurrency: int | None = None
    rate: int | None = None
    per: Span = 1.0
    spacing: Span | None = None

    def __post_init__(self) -> None:
        for option, many in (("concurrency", self.concurrency), ("rate", self.rate)):
            need(option, many, many is None or is_whole(many, 1), "a whole number of jobs from 1")
        for option, span in (("per", self.per), ("spacing", self.spacing)):
            need(option, span, span is None or is_span(span), "more than 0 seconds")
        if (self.concurrency, self.rate, self.spacing) == (None, None, None):
            why = "This limits nothing: give concurrency=, rate= or spacing="
            raise BadOption(why, option="limit")

    def row(self) -> store_limits.Limit:
        """The limit in the form of the store."""
        spacing = None if self.spacing is None else us_of(self.spacing)
        return store_limits.Limit(self.concurrency, self.rate, us_of(self.per), spacing)


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """No second job like this one: of its type, with equal arguments or an equal choice of them.

    Without `within` every live job counts; with it every job of that age, ended ones too. `states`
    overrides both. A second one gives way (`ignore`, the handle is that of the first), is refused
    with `JobExists` (`reject`), or takes the place of the first, if that has not begun (`replace`).
    """

    by: Sequence[str] | None = None
    within: Span | None = None
    states: Sequence[str] | None = None
    on_conflict: Literal["ignore", "reject", "replace"] = "ignore"

    def __post_init__(self) -> None:
        by, within, states = self.by, self.within, self.states
        need("by", by, by is None or is_names(by), "names of arguments, like ['user']")
        need("within", within, within is None or is_span(within), "more than 0 seconds")
        is_known = states is None or (is_names(states) and bool(states) and set(states) <= _STATES)
        need("states", states, is_known, f"several of {', '.join(JobState)}")
        choices = list(OnConflict)
        need("on_conflict", self.on_conflict, self.on_conflict in choices, " or ".join(choices))
