"""What a job says about how long things may last: all attempts, a silence, and its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from detent.engine.lasting import FOR_EVER, KEEP
from detent.lifecycle.retry import RetryPolicy
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.wire import seconds

TERMS: Final = frozenset({"total_timeout", "heartbeat_timeout", "result_ttl"})
_YEAR_US: Final = 366 * 86_400 * 1_000_000


class Terms(msgspec.Struct, frozen=True):
    """What was said; `None` where nothing was. A `keep_us` below 0 is for ever."""

    total_us: int | None = None
    stall_us: int | None = None
    keep_us: int | None = None

    def retried(self, policy: RetryPolicy) -> RetryPolicy:
        """The policy with the time that all attempts have together."""
        return policy if self.total_us is None else replace(policy, total_us=self.total_us)

    def kept(self, meta: Mapping[str, Raw]) -> Mapping[str, Raw]:
        """The metadata with how long the result is kept."""
        if self.keep_us is None:
            return meta
        return {**meta, KEEP: Raw(str(self.keep_us).encode())}


_NONE = Terms()


def terms_of(options: Mapping[str, Any], timeout_us: int | None) -> Terms:
    """What the options say; what cannot be is refused with its field."""
    if not TERMS & options.keys():
        return _NONE
    return Terms(
        _total(options.get("total_timeout"), timeout_us),
        _length("heartbeat_timeout", options.get("heartbeat_timeout")),
        _keep(options.get("result_ttl")),
    )


def _length(name: str, value: object) -> int | None:
    return None if value is None else seconds(name, value)


def _total(value: object, timeout_us: int | None) -> int | None:
    total_us = _length("total_timeout", value)
    if total_us is None:
        return None
    if total_us > _YEAR_US:
        raise invalid("total_timeout is at most a year", field="total_timeout")
    if timeout_us is not None and total_us < timeout_us:
        why = "total_timeout must not be less than the timeout of one attempt"
        raise invalid(why, field="total_timeout")
    return total_us


def _keep(value: object) -> int | None:
    """For how long; 0 is not at all, and -1 for ever."""
    if value is None or (type(value) is int and value in (0, FOR_EVER)):
        return value
    return seconds("result_ttl", value)
