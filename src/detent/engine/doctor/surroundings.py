"""What is around a store: Python, the libraries, and who says where the store is."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from importlib.util import find_spec

from detent.stores.checks import Check, fine, harm, notice


def python() -> list[Check]:
    """The interpreter and the libraries that we bring along."""
    found = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()}"
    told = f"{found}, detent {metadata.version('detent')}"
    missing = [name for name in needed("detent") if not _is_there(name)]
    if missing:
        why = "what needs it fails when it is first used, perhaps in the middle of a job"
        mend = f"pip install {' '.join(missing)}, or install detent anew"
        return [fine("Python", told), harm("libraries", f"missing: {missing}", why, mend), _loop()]
    return [fine("Python", told), fine("libraries", "all are there"), _loop()]


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


def _loop() -> Check:
    if find_spec("uvloop") is not None:
        return fine("event loop", f"uvloop {metadata.version('uvloop')}")
    why = "servers and workers run on Python's own loop, which is a good deal slower"
    return notice("event loop", "asyncio: uvloop is not there", why, "pip install uvloop")


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
