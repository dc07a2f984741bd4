"""What somebody has set about a queue: its bound, and what its jobs have unless they say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.lifecycle.profile import Deadlines
from detent.lifecycle.retry import RetryPolicy
from detent.surfaces.http.problems import Problem
from detent.surfaces.ojs.faults import invalid, unsupported
from detent.surfaces.ojs.policies import retry_of
from detent.surfaces.ojs.reading import Wanted
from detent.surfaces.ojs.wire import seconds, span

__all__ = ["BLOCK", "DROP", "Config", "completed", "ignored_of", "read_config"]

_WARNING: Final = 0.8
_TYPES_MAX: Final = 100
BLOCK: Final = "block"
DROP: Final = "drop_oldest"
_STRATEGIES: Final = ("reject", BLOCK, DROP)
DROPPED_FROM_MAX: Final = 1_000
"""How many jobs are looked through for the oldest of them."""
_IGNORED: Final = ("retention", "dead_letter_queue")


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
    strategy: str = "reject"
    is_deleted: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether no new job is any different for it."""
        bounds = (self.max_depth, self.retry, self.timeout_us, self.types)
        return not self.is_deleted and all(one is None for one in bounds)


def read_config(fields: Mapping[str, Raw], now: int) -> Config:
    """What a body says; what cannot be is refused with its field."""
    given = {name: msgspec.json.decode(raw) for name, raw in fields.items()}
    pressure = _object("backpressure", given.get("backpressure"))
    retry = given.get("default_retry")
    _object("retention", given.get("retention"))
    return Config(
        now,
        Raw(msgspec.json.encode(dict(fields))),
        _bound(pressure),
        _warning(pressure.get("warning_threshold")),
        None if retry is None else retry_of(retry),
        _length("default_timeout", given.get("default_timeout")),
        _length("visibility_timeout", given.get("visibility_timeout")),
        _types(given.get("allowed_job_types")),
        _strategy(pressure),
    )


def ignored_of(fields: Mapping[str, Raw]) -> list[str]:
    """What may be said about a queue, and is kept, but does nothing here."""
    found = [name for name in _IGNORED if name in fields]
    pressure = msgspec.json.decode(fields.get("backpressure", b"null")) or {}
    return [*found, "backpressure.max_size_bytes"] if "max_size_bytes" in pressure else found


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
    if config.timeout_us is not None and not said & {"timeout_ms", "timeout"}:
        ask = replace(ask, deadlines=Deadlines(active_us=config.timeout_us))
    return wanted if ask is wanted.ask else replace(wanted, ask=ask)


def _object(name: str, value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid(f"{name} must be an object", field=name)
    return value


def _bound(pressure: Mapping[str, Any]) -> int | None:
    bound = pressure.get("max_depth")
    if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int) or bound < 1):
        raise invalid("backpressure.max_depth must be a number, 1 or more", field="backpressure")
    return bound


def _strategy(pressure: Mapping[str, Any]) -> str:
    strategy, bound = pressure.get("strategy"), pressure.get("max_depth")
    if strategy is None:
        return "reject"
    if strategy not in _STRATEGIES:
        known = ", ".join(_STRATEGIES)
        raise invalid(f"backpressure.strategy must be one of {known}", field="backpressure")
    if strategy == DROP and (bound or 0) > DROPPED_FROM_MAX:
        why = f"backpressure.strategy: drop_oldest is for a max_depth of {DROPPED_FROM_MAX} or less"
        raise unsupported(why)
    return str(strategy)


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
