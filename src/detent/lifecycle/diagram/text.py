"""Text in pictures: how wide it is without a font at hand, and how it is made harmless."""

from __future__ import annotations

import html
from math import fsum
from typing import Final

# The widest common faces (the DejaVu family) need this much of their size on average; other faces
# need less, so what fits by this measure fits everywhere.
_MONO_EM: Final = 0.61
_SANS_EM: Final = 0.6
_WIDE_EM: Final = 1.05
_FIRST_WIDE: Final = 0x2E80
_FIRST_PRINTABLE: Final = 0x20
_SURROGATES: Final = range(0xD800, 0xE000)


def width(text: str, size: float, *, mono: bool = False) -> float:
    """An upper bound of the width of `text` in pixels."""
    narrow = _MONO_EM if mono else _SANS_EM
    return size * fsum(_WIDE_EM if ord(char) >= _FIRST_WIDE else narrow for char in text)


def clip(text: str, limit: int) -> str:
    """At most `limit` characters, the last of them an ellipsis when something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


def escape(text: str) -> str:
    """`text` for XML, as content or attribute; what XML cannot hold becomes U+FFFD."""
    safe = html.escape("".join(char if _is_xml(char) else "\ufffd" for char in text))
    # A reader would turn a bare line break inside an attribute into a space.
    return "".join(f"&#{ord(char)};" if char < " " else char for char in safe)


def _is_xml(char: str) -> bool:
    if ord(char) < _FIRST_PRINTABLE:
        return char in "\t\n\r"
    return ord(char) not in _SURROGATES and char not in "\ufffe\uffff"


_UNITS: Final = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"))


def duration(length_us: int) -> str:
    """A length of time as people say it: two digits that matter and one unit."""
    for unit_us, name in _UNITS:
        if length_us >= unit_us:
            return f"{_short(length_us / unit_us)} {name}"
    if length_us >= 999_500:
        return f"{_short(length_us / 1_000_000)} s"
    return f"{_short(length_us / 1000)} ms"


def _short(value: float) -> str:
    text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
    return text.removesuffix(".0")
