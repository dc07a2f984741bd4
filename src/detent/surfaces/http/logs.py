"""Log lines as JSON, one object each, for whoever collects them."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime

import msgspec

__all__ = ["JsonLines", "log_to_stderr"]

_SEVERITIES = {
    logging.DEBUG: ("DEBUG", 5),
    logging.INFO: ("INFO", 9),
    logging.WARNING: ("WARN", 13),
    logging.ERROR: ("ERROR", 17),
    logging.CRITICAL: ("FATAL", 21),
}


class JsonLines(logging.Formatter):
    """Makes one line of JSON of a record; arguments of jobs are never in one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        word, number = _SEVERITIES.get(record.levelno, ("INFO", 9))
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {
            "timestamp": at.replace("+00:00", "Z"),
            "severity": word,
            "severity_number": number,
            "message": record.getMessage(),
            "component": "server",
            "logger": record.name,
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(told).decode()


def log_to_stderr(*, as_json: bool) -> None:
    """Begin to log: for people, or for whoever collects lines."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else plain)
    level = os.environ.get("DETENT_LOG_LEVEL", "INFO").upper()
    logging.basicConfig(level=level, handlers=[handler], force=True)
