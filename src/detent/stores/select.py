"""Closed filters: everything that can be asked of a store's records, and nothing else."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Only(StrEnum):
    """What no single field of a job says."""

    LETTERS = "letters"
    """Discarded, and a dead letter."""
    READY = "ready"
    """Available, not held, and behind no closed step, as far as the store has written that down."""


class Filter(msgspec.Struct, frozen=True):
    """What a job must be to be found; `None` means any. All conditions hold together."""

    tenant: str | None = None
    queue: str | None = None
    state: str | None = None
    type: str | None = None
    profile: str | None = None
    key: str | None = None
    tag: str | None = None
    workflow: str | None = None
    step: str | None = None
    held: bool | None = None
    only: str | None = None
    """One of `Only`."""


class Page(msgspec.Struct, frozen=True):
    """At most `limit` records, those that come after the one with the key `after`.

    Ids are time-ordered, so newest first is by id, downwards; a page costs the same at any depth.
    Two tenants may use the same id, so the place of a record is told by both.

    What is rare is looked for as far back as there is anything, unless `look` says how many records
    that are passed over are enough; then fewer than `limit` may be found, though there are more.
    """

    limit: int = 50
    after: tuple[str, str] | None = None
    look: int | None = None

    def is_after(self, tenant: str, id_: str) -> bool:
        """Whether a record comes after the last one of the page before."""
        return self.after is None or (id_, tenant) < self.after[::-1]


FIRST_PAGE = Page()
