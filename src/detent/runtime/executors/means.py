"""By what means the jobs of a type are run: declared with the job, chosen anew for every run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

import msgspec

from detent.stores.api import Stored


class Kind(StrEnum):
    """Where a handler runs."""

    ASYNC = "async"
    THREAD = "thread"
    PROCESS = "process"


class Means(msgspec.Struct, frozen=True):
    """What a job type says about it; whatever is `None` follows from the function and the job.

    `memory_bytes` bounds the address space of its process. `grace_us` is how long a run has, from
    the word that it should stop, until it is interrupted, and again until it is killed.
    """

    executor: Kind | None = None
    memory_bytes: int | None = None
    grace_us: int | None = None


def is_alone(stored: Stored) -> bool:
    """Whether it gets a process that runs nothing else: its next loss is to be its own."""
    return stored.job.losses > 0


def kind_of(stored: Stored, function: Callable[..., Any], means: Means) -> Kind:
    """Where a run of the job belongs.

    A job that has lost a worker runs where nobody else can be hurt by it. A thread cannot be
    stopped, so a plain function that must end in time runs in a process.
    """
    if is_alone(stored) or means.memory_bytes is not None:
        return Kind.PROCESS
    if means.executor is not None:
        return means.executor
    if inspect.iscoroutinefunction(function):
        return Kind.ASYNC
    return Kind.THREAD if stored.job.active_us is None else Kind.PROCESS


def chosen(wanted: Kind, function: Callable[..., Any], there: Collection[Kind]) -> Kind:
    """The same among those that a worker has: one inside a program may have no processes."""
    if wanted in there:
        return wanted
    return Kind.ASYNC if inspect.iscoroutinefunction(function) else Kind.THREAD
