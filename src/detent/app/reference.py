"""The base of handles: an id, by which everything else is read from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

from detent.errors import NotPortable

if TYPE_CHECKING:
    from detent.app.detent import Detent
    from detent.runtime.bridge import Bridge


class Reference:
    """Something in the store of an app; equal to any other that means the same."""

    way = ""
    """How an app is asked for it again."""

    def __init__(self, app: Detent, id: str, tenant: str = "", *, is_new: bool = True) -> None:  # noqa: A002
        self.app = app
        self.id = id
        self.tenant = tenant
        self.is_new = is_new
        """False when it was there before: found under its key or id, or only asked for."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def __eq__(self, other: object) -> bool:
        """Whether both mean the same of the same app, however they were come by."""
        if not isinstance(other, type(self)):
            return NotImplemented
        return (self.app, self.tenant, self.id) == (other.app, other.tenant, other.id)

    def __hash__(self) -> int:
        return hash((self.tenant, self.id))

    def __copy__(self) -> Self:
        """Itself: it has nothing of its own that could change."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: what comes out elsewhere would have no app, and no store."""
        name, tenant = type(self).__name__, ", tenant" if self.tenant else ""
        why = f"A {name} belongs to the app of this process and cannot be pickled"
        fix = f"keep its id, and ask with it where it is needed: app.{self.way}(id{tenant})"
        raise NotPortable(f"{why}; {fix}", id=self.id, tenant=self.tenant)

    @property
    def bridge(self) -> Bridge:
        """The way to the store."""
        return self.app.bridge
