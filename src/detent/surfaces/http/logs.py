"""Log lines as JSON, one object each, for whoever collects them."""

from __future__ import annotations

import logging
import os
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from detent.engine.otel_spans import current

_SEVERITIES = {
    logging.DEBUG: ("DEBUG", 5),
    logging.INFO: ("INFO", 9),
    logging.WARNING: ("WARN", 13),
    logging.ERROR: ("ERROR", 17),
    logging.CRITICAL: ("FATAL", 21),
}


REQUEST: Final[ContextVar[str]] = ContextVar("detent_request", default="")
"""The id of the request that is being answered."""
JSON_LOGS: Final = "DETENT_JSON_LOGS"
LOG_LEVEL: Final = "DETENT_LOG_LEVEL"
_PLAIN: Final = "%(asctime)s %(levelname)s %(message)s"
_API_KEY: Final = re.compile(r"(dtk_[0-9a-f]+_)[\w-]+")


def _mask_keys(line: str) -> str:
    """Replace the secret part of every API key; libraries may log a path with a key in it."""
    return _API_KEY.sub(r"\1***", line) if "dtk_" in line else line


class PlainLines(logging.Formatter):
    """Formats a record as text for people, without API keys."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with its traceback."""
        return _mask_keys(super().format(record))


class JsonLines(logging.Formatter):
    """Makes one line of JSON of a record; arguments of jobs are never in one.

    What is said while a request is answered has its id, and what is said inside a span has that.
    """

    def __init__(self, component: str = "server") -> None:
        super().__init__()
        self._component = component

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        word, number = _SEVERITIES.get(record.levelno, ("INFO", 9))
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {
            "timestamp": at.replace("+00:00", "Z"),
            "severity": word,
            "severity_number": number,
            "message": record.getMessage(),
            "component": self._component,
            "logger": record.name,
            **_about(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        elif record.exc_text:
            told["exception"] = record.exc_text
        return _mask_keys(msgspec.json.encode(told).decode())


def _about() -> dict[str, Any]:
    told: dict[str, Any] = {}
    if request := REQUEST.get():
        told["request_id"] = request
    if trace := current():
        told["trace"] = {"trace_id": trace.trace_id, "span_id": trace.span_id}
    return told


def log_to_stderr(
    *, as_json: bool, component: str = "server", plain: str = _PLAIN, level: int = logging.INFO
) -> None:
    """Begin to log: for people, or for whoever collects lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines(component) if as_json else PlainLines(plain))
    named = os.environ.get(LOG_LEVEL, "").upper()
    logging.basicConfig(level=named or level, handlers=[handler], force=True)
