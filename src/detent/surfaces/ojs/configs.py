"""What somebody has set about a queue: its bound, and what its jobs have unless they say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.lifecycle.job.table import ENDED
from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import Exhaustion, RetryPolicy
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.faults import invalid, unsupported
from detent.surfaces.ojs.policies import retry_of
from detent.surfaces.ojs.reading import Wanted, need_queue
from detent.surfaces.ojs.wire import seconds, span

USUAL: Final = "_default"
"""In place of a queue: what holds for all queues that say nothing else."""

_WARNING: Final = 0.8
_TYPES_MAX: Final = 100
_BOUND_MAX: Final = 2**53 - 1
REJECT: Final = "reject"
# Strategies of the specification that Detent does not have.
_UNSUPPORTED: Final = ("block", "drop_oldest")
_LIMITS: Final = ("concurrency", "rate_limit")
_KNOWN: Final = frozenset(
    {
        *_LIMITS,
        "retention",
        "backpressure",
        "visibility_timeout",
        "default_timeout",
        "default_retry",
        "dead_letter_queue",
        "allowed_job_types",
    }
)
_PRESSURE: Final = frozenset({"max_depth", "max_size_bytes", "strategy", "warning_threshold"})
_YEARS_US: Final = 100 * 366 * 86_400 * 1_000_000


class Config(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was set; `told` is all of it as it was sent. A deleted queue has nothing but that."""

    created_at: int
    told: Raw = Raw(b"{}")
    max_depth: int | None = None
    warning: float = _WARNING
    retry: RetryPolicy | None = None
    timeout_us: int | None = None
    visibility_us: int | None = None
    types: tuple[str, ...] | None = None
    is_deleted: bool = False
    max_bytes: int | None = None
    kept_us: dict[str, int] = {}
    dead_letters: str | None = None
    is_draining: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether only so many jobs, or so much of them, may be in the queue."""
        return self.max_depth is not None or self.max_bytes is not None

    @property
    def is_plain(self) -> bool:
        """Whether no new job is any different for it."""
        bounds = (self.retry, self.timeout_us, self.types, self.dead_letters)
        is_shut = self.is_deleted or self.is_draining or self.is_bounded
        return not is_shut and all(one is None for one in bounds)

    def over(self, usual: Config) -> Config:
        """The same with what is usual for all queues where it says nothing itself."""
        bound = self if self.is_bounded else usual
        return replace(
            self,
            created_at=max(self.created_at, usual.created_at),
            max_depth=bound.max_depth,
            max_bytes=bound.max_bytes,
            warning=bound.warning,
            kept_us={**usual.kept_us, **self.kept_us},
            **{name: _first(self, usual, name) for name in _SINGLE},
        )


_SINGLE: Final = ("retry", "timeout_us", "visibility_us", "types", "dead_letters")


def _first(config: Config, usual: Config, name: str) -> Any:
    said = getattr(config, name)
    return getattr(usual, name) if said is None else said


def read_config(fields: Mapping[str, Raw], now: int) -> Config:
    """What a body says; what cannot be is refused with its field."""
    given = {name: msgspec.json.decode(raw) for name, raw in fields.items()}
    pressure = _object("backpressure", given.get("backpressure"))
    _need_reject(pressure.get("strategy"))
    retry, letters = given.get("default_retry"), given.get("dead_letter_queue")
    return Config(
        now,
        Raw(msgspec.json.encode(dict(fields))),
        _bound(pressure),
        _warning(pressure.get("warning_threshold")),
        None if retry is None else retry_of(retry),
        _length("default_timeout", given.get("default_timeout")),
        _length("visibility_timeout", given.get("visibility_timeout")),
        _types(given.get("allowed_job_types")),
        max_bytes=_bound(pressure, "max_size_bytes"),
        kept_us=_kept(_object("retention", given.get("retention"))),
        dead_letters=None if letters is None else need_queue(letters),
    )


def ignored_of(name: str, fields: Mapping[str, Raw]) -> list[str]:
    """What was said about the queue, and is kept, but does nothing here."""
    known = _KNOWN.difference(_LIMITS) if name == USUAL else _KNOWN
    pressure = msgspec.json.decode(fields.get("backpressure", b"null")) or {}
    more = [f"backpressure.{one}" for one in sorted(pressure.keys() - _PRESSURE)]
    return [*sorted(fields.keys() - known), *more]


def completed(wanted: Wanted, config: Config | None) -> Wanted:
    """The same with what its queue says about whatever it does not say itself."""
    if config is None or config.is_plain:
        return wanted
    ask, said = wanted.ask, wanted.said
    if config.types is not None and ask.type not in config.types:
        why = f"queue {ask.queue} takes no jobs of type {ask.type}"
        raise Problem(422, "validation_error", why, field="type", allowed=list(config.types))
    if config.retry is not None and not said & {"retry", "retry_policy"}:
        total = None if ask.retry is None else ask.retry.total_us
        ask = replace(ask, retry=replace(config.retry, total_us=total))
    if config.dead_letters is not None and not said & {"on_exhaustion"}:
        policy = ask.retry or RetryPolicy()
        ask = replace(ask, retry=replace(policy, on_exhaustion=Exhaustion.DEAD_LETTER))
    if config.timeout_us is not None and not said & {"timeout_ms", "timeout"}:
        ask = replace(ask, deadlines=Deadlines(active_us=config.timeout_us))
    return wanted if ask is wanted.ask else replace(wanted, ask=ask)


def _object(name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object", field=name)
    return value


def _bound(pressure: Mapping[str, Any], name: str = "max_depth") -> int | None:
    bound = pressure.get(name)
    if bound is not None and (type(bound) is not int or not 1 <= bound <= _BOUND_MAX):
        why = f"backpressure.{name} must be a number from 1 to {_BOUND_MAX}"
        raise invalid(why, field="backpressure")
    return bound


def _kept(retention: Mapping[str, Any]) -> dict[str, int]:
    """How long jobs are kept that have ended, by how they did."""
    unknown = sorted(retention.keys() - ENDED)
    if unknown:
        known = ", ".join(sorted(ENDED))
        raise invalid(f"retention is for {known}, not for {unknown[0]}", field="retention")
    lengths = {state: _length(f"retention.{state}", one) for state, one in retention.items()}
    return {state: min(us, _YEARS_US) for state, us in lengths.items() if us is not None}


def _need_reject(strategy: object) -> None:
    """Refuse every strategy but the one that a full queue has here."""
    if strategy in _UNSUPPORTED:
        why = f"backpressure.strategy: {strategy!r} is not supported; use 'reject'"
        raise unsupported(
            f"{why} (warning_threshold warns before that)", field="backpressure.strategy"
        )
    if strategy not in (None, REJECT):
        raise invalid("backpressure.strategy must be 'reject'", field="backpressure")


def _warning(value: object) -> float:
    if value is None:
        return _WARNING
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        why = "backpressure.warning_threshold must be a number from 0 to 1"
        raise invalid(why, field="backpressure")
    return float(value)


def _length(name: str, value: object) -> int | None:
    """A length, in seconds or as ISO 8601 has it."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return seconds(name, value)
    return max(span(name, value), 1)


def _types(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise invalid("allowed_job_types must be an array of types", field="allowed_job_types")
    if len(value) > _TYPES_MAX:
        why = f"allowed_job_types has {len(value)} items; {_TYPES_MAX} is the most"
        raise invalid(why, field="allowed_job_types")
    return tuple(value)
