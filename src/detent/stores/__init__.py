"""Stores: records and their histories, behind one small protocol.

    async with open("sqlite:///var/detent.db") as store: ...

The scheme of the address chooses the database. Only the chosen one is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module

from detent import errors
from detent.stores.api import Store

__all__ = ["SCHEMES", "Store", "open"]

SCHEMES = {
    "memory": "detent.stores.memory",
    "sqlite": "detent.stores.sqlite",
}
"""Which module opens which scheme; each has `connect(url, clock) -> Store`."""


def open(url: str, *, clock: Callable[[], int] | None = None) -> Store:  # noqa: A001
    """The store at this address, not connected yet: enter it. `clock` gives microseconds."""
    scheme, colon, _ = url.partition(":")
    if not colon or scheme not in SCHEMES:
        raise _unknown(scheme if colon else url)
    store: Store = import_module(SCHEMES[scheme]).connect(url, clock)
    return store


def _unknown(scheme: str) -> errors.BadUrl:
    near = get_close_matches(scheme, SCHEMES, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]}:?" if near else ""
    known = ", ".join(f"{one}:" for one in SCHEMES)
    return errors.BadUrl(
        f"No store is called {scheme!r}.{hint} Known are {known}",
        scheme=scheme,
        known=tuple(SCHEMES),
        near=near[0] if near else None,
    )
