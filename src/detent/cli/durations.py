"""Lengths of time as they are typed: 90s, 5m, 1h30m, 7d."""

from __future__ import annotations

from typing import Any

import typer

from detent.engine.cron import every_us
from detent.errors import BadSchedule


def span_us(text: str) -> int:
    """The same in microseconds; anything else is a fault of the command line."""
    try:
        return every_us(f"@every {text}") or 0
    except BadSchedule:
        raise typer.BadParameter(
            f"{text!r} is no length of time like 90s, 5m, 1h30m or 7d."
        ) from None


def checked(text: str | None) -> str | None:
    """The text as it is, if it can be read."""
    if text is not None:
        span_us(text)
    return text


def span_option(*names: str, meaning: str) -> Any:
    """An option that takes a length of time."""
    return typer.Option(*names, metavar="SPAN", callback=checked, help=meaning)
