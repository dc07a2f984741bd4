"""What is around a store: Python, the libraries, and who says where the store is."""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib import metadata

from detent.stores.checks import Check, fine, harm, notice


def python() -> list[Check]:
    """The interpreter and the libraries that we bring along."""
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    told = fine("Python", f"{found}, detent {metadata.version('detent')}")
    return [told, libraries(needed("detent")), event_loop("uvloop")]


def libraries(names: Sequence[str]) -> Check:
    """Whether all of these are installed."""
    missing = [name for name in names if not _is_there(name)]
    if not missing:
        return fine("libraries", f"all {len(names)} are there")
    why = "what needs it fails when it is first used, perhaps in the middle of a job"
    mend = f"pip install {' '.join(missing)}, or install detent anew"
    return harm("libraries", f"missing: {', '.join(missing)}", why, mend)


def needed(package: str) -> list[str]:
    """The packages that one cannot be without on this system."""
    told = metadata.requires(package) or []
    # An extra is for whoever asks for it; what is for other systems is not looked for at all.
    plain = [one for one in told if "extra ==" not in one]
    return [_name(one) for one in plain if "win32" not in one or sys.platform != "win32"]


def _name(requirement: str) -> str:
    end = next((at for at, sign in enumerate(requirement) if sign in "<>=!~;[ "), len(requirement))
    return requirement[:end]


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def event_loop(name: str) -> Check:
    """Whether the quick one is there."""
    if _is_there(name):
        return fine("event loop", f"{name} {metadata.version(name)}")
    why = "servers and workers run on Python's own loop, which is a good deal slower"
    return notice("event loop", f"asyncio: {name} is not there", why, f"pip install {name}")


def address(url: str, shown: str, origin: str | None) -> Check:
    """Who says where the store is, and whether everybody means the same by it."""
    found = f"{shown}, by {origin or 'default'}"
    scheme, _, rest = url.partition(":")
    is_relative = scheme == "sqlite" and not rest.startswith("/")
    if is_relative:
        why = "it names a file in the folder where a program was started: others may mean another"
        mend = "DETENT_STORE=sqlite:///absolute/path, for programs, workers and commands alike"
        return notice("address", found, why, mend)
    return fine("address", found)
