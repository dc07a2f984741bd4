"""The optional packages of Detent, and the extra that installs each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from detent.errors import PackageMissing

# The packages of each extra by the names that they are imported by, as pyproject.toml lists them.
EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "server": (
        "starlette",
        "uvicorn",
        "httptools",
        "wsproto",
        "socketio",
        "jsonschema_rs",
        "prometheus_client",
    ),
    "postgres": ("asyncpg",),
    "secrets": ("cryptography",),
    "remote": ("httptools",),
    "engine": ("socketio", "aiohttp"),
    "otel": ("opentelemetry",),
}


def has_extra(extra: str) -> bool:
    """Whether all packages of an extra are installed."""
    return all(_is_installed(package) for package in EXTRAS[extra])


@contextmanager
def needs_extra(extra: str, purpose: str) -> Iterator[None]:
    """Import packages of an extra in this block; raise `PackageMissing` if one is not installed.

    `purpose` begins the message: "An HTTP server" needs the package uvicorn.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS[extra]:
            raise
        raise PackageMissing(
            f"{purpose} needs the package {package}, which is not installed:"
            f" pip install 'detent[{extra}]'",
            package=package,
            extra=extra,
        ) from None


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # What sys.modules has no specification of.
        return False
