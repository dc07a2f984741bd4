"""One thing that is wrong with a store: what, where, and how to look at it."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from detent.stores.api import Key


class Check(StrEnum):
    """Which question was answered with no."""

    ROW = "row"
    HISTORY = "history"
    LEASE = "lease"
    FLOW = "flow"
    TALLY = "tally"
    FEED = "feed"
    SEAL = "seal"
    COUNT = "count"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A sentence that says what is wrong, and as much about where as can be known.

    `flow` is the workflow that the record belongs to, where it is one of a workflow.
    """

    check: Check
    why: str
    key: Key | None = None
    version: int | None = None
    pos: int | None = None
    block: int | None = None
    flow: Key | None = None

    @property
    def where(self) -> str:
        """The offender's name."""
        if self.key is not None:
            tenant, record = self.key
            of_tenant = f" of tenant {tenant}" if tenant else ""
            at_version = f" version {self.version}" if self.version is not None else ""
            return f"{record}{of_tenant}{at_version}"
        if self.block is not None:
            return f"block {self.block}"
        return "the counts" if self.pos is None else f"position {self.pos} of the feed"

    @property
    def look(self) -> str:
        """The question to a store that shows the offender."""
        if self.flow is not None:
            return f"await store.history({self.key!r}), await store.flows([{self.flow!r}])"
        if self.key is not None:
            return f"await store.history({self.key!r}), await store.get([{self.key!r}])"
        if self.block is not None:
            return f"await store.blocks({self.block - 1}, 1)"
        return "await store.counts()" if self.pos is None else f"await store.feed({self.pos - 1})"
