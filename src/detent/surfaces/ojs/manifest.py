"""The manifest, which says what this server can do, and its health."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import Any, Final

from detent.engine.limits import DEPTH_MAX, META_BYTES_MAX, PAYLOAD_BYTES_MAX, RESULT_BYTES_MAX
from detent.errors import StoreClosed, StoreError, StoreUnavailable
from detent.stores.api import RECORDS_MAX
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk

_LEVEL: Final = 4
_VERSION: Final = version("detent")
_REMOTE = {
    "name": "x-detent-remote-workers",
    "uri": "https://detent.dev/ojs/remote-workers",
    "version": "1.0",
}
"""What our own workers say: `claim_id` and `records` of a fetch, `leases` of a heartbeat, and
`/workers/report`, `/workers/wait`, `/workers/results` and `/workers/gone`."""
_OFFICIAL = (
    "admin-api",
    "dead-letter",
    "progress",
    "observability",
    "graceful-shutdown",
    "backpressure",
    "durable-execution",
    "rate-limiting",
    "results",
    "realtime",
    "multi-tenancy",
    "bulk",
    "webhooks",
    "schema-registry",
    "total-timeout",
    "stall-detection",
    "result-ttl",
)
_ABSENT = (
    "federation",
    "attest",
    "wasi",
    "agent-fork-merge",
    "grpc",
    "amqp",
)


class Manifest:
    """The operations that describe this server."""

    def __init__(self, desk: Desk, paths: dict[str, str]) -> None:
        self._desk = desk
        self._paths = paths

    async def manifest(self, _: Call) -> Reply:
        """What this server can do."""
        uri = "https://openjobspec.org/extensions"
        official = [{"name": name, "uri": f"{uri}/{name}", "version": "1.0"} for name in _OFFICIAL]
        body = {
            "specversion": "1.0",
            "ojs_version": "1.0",
            "implementation": {
                "name": "detent",
                "version": _VERSION,
                "language": "python",
                "homepage": "https://detent.dev",
            },
            "conformance_level": _LEVEL,
            "conformance_tier": "full",
            "protocols": ["http"],
            "backend": self._desk.engine.store.backend,
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
            "unique_job_strength": "strong",
            "extensions": {
                "official": official,
                "experimental": [_REMOTE],
                "absent": _ABSENT,
                "payload_limits": {
                    "max_envelope_bytes": self._desk.settings.body_bytes_max,
                    "max_args_bytes": PAYLOAD_BYTES_MAX,
                    "max_meta_bytes": META_BYTES_MAX,
                    "max_result_bytes": RESULT_BYTES_MAX,
                    "max_batch_size": RECORDS_MAX,
                    "max_depth": DEPTH_MAX,
                },
            },
            "endpoints": self._paths,
        }
        return self._desk.reply(body)

    async def health(self, call: Call) -> Reply:
        """Whether the store answers."""
        began = time.perf_counter()
        error = await self._store_error()
        latency_ms = round((time.perf_counter() - began) * 1_000)
        is_well = error is None
        uptime = (time.time_ns() // 1_000 - self._desk.started_at) // 1_000_000
        word = "ok" if is_well else "degraded"
        body: dict[str, Any] = {
            "status": word,
            "version": _VERSION,
            "uptime_seconds": uptime,
            "backend": {
                "type": self._desk.engine.store.backend,
                "status": _backend_status(error, is_sdk=b"ojs-version" in call.headers),
                "latency_ms": latency_ms,
            },
        }
        return self._desk.reply(body, 200 if is_well else 503)

    async def ready(self, _: Call) -> Reply:
        """Whether requests should be sent here."""
        is_ready = self._desk.service.is_running and await self._store_error() is None
        body = {"status": "ok" if is_ready else "unavailable"}
        return self._desk.reply(body, 200 if is_ready else 503)

    async def live(self, _: Call) -> Reply:
        """Whether the process answers at all."""
        return self._desk.reply({"status": "ok"})

    async def _store_error(self) -> StoreError | None:
        """Why the store does not answer a small question; `None` if it does."""
        try:
            await self._desk.engine.store.record([("ojs-worker", "", "health")])
        except StoreError as error:
            return error
        return None


def _backend_status(error: StoreError | None, *, is_sdk: bool) -> str:
    """The state of the store.

    The HTTP binding and the SDKs, which send `OJS-Version`, have other words for it than the
    official cases.
    """
    if not is_sdk:
        return "ok" if error is None else "unhealthy"
    if error is None:
        return "connected"
    return "disconnected" if isinstance(error, StoreUnavailable | StoreClosed) else "error"


_CAPABILITIES = (
    "batch_enqueue",
    "cron_jobs",
    "dead_letter",
    "delayed_jobs",
    "job_ttl",
    "priority_queues",
    "rate_limiting",
    "unique_jobs",
    "workflows",
    "pause_resume",
    "schema_validation",
)
