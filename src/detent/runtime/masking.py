"""Keeps secrets out of what a run says: its log, its progress, its errors and their tracebacks.

A value is looked for as it is and as programs write it when they complain: quoted, as JSON, inside
an address. Values of less than three characters are left alone, because hiding every `7` would hide
the log; so are true, false and null.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

from detent.engine.secrets import REDACTED

CHARS_MIN: Final = 3


class Mask:
    """Replaces secret values in texts."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        texts = {form for value in values for text in _texts(value) for form in _forms(text)}
        # The longest first: of two values where one contains the other nothing is left over.
        told = sorted((one for one in texts if len(one) >= CHARS_MIN), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, told))) if told else None

    def __call__(self, text: str) -> str:
        return self._pattern.sub(REDACTED, text) if self._pattern else text


def _texts(value: Any) -> Iterator[str]:
    """Every text and number in a value; names of fields are no secrets."""
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value
        # Of a key over many lines a traceback shows one at a time.
        yield from (line.strip() for line in value.splitlines())
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _forms(text: str) -> Iterator[str]:
    yield text
    yield repr(text)[1:-1]
    yield msgspec.json.encode(text).decode()[1:-1]
    yield ascii(text)[1:-1]
    yield quote(text, safe="")
    yield quote_plus(text)
    yield quote(text)
