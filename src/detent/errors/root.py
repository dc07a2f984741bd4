"""The root of the tree, and what the lifecycle itself refuses."""

from __future__ import annotations

from typing import Any, ClassVar


class DetentError(Exception):
    """Something Detent refuses; `code` is stable, `fields` hold the facts."""

    code: ClassVar[str] = "detent_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields


class IllegalTransition(DetentError):
    """The lifecycle does not allow this move from this state by this actor."""

    code = "illegal_transition"


class BadMachine(DetentError):
    """A lifecycle table contradicts itself; nothing can run until it is mended."""

    code = "bad_machine"


class BadHistory(DetentError):
    """A history breaks a rule of its lifecycle at the version named in the fields."""

    code = "bad_history"


class BadProof(DetentError):
    """A proof of inclusion does not lead to the head it is checked against."""

    code = "bad_proof"


class BadPolicy(DetentError):
    """A retry policy or workflow shape has a value that cannot work; `fields["field"]` names it."""

    code = "bad_policy"
