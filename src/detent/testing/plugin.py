"""The pytest plugin: a fixture `rig`, on the app that the project's configuration names.

[tool.pytest.ini_options]
detent_app = "shop.jobs:app"
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from detent.app.detent import Detent
    from detent.testing.rig import Rig


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the project's app is."""
    parser.addini("detent_app", "the Detent app that the fixture `rig` takes over: module:name")


@pytest.fixture
def rig(pytestconfig: pytest.Config) -> Iterator[Rig]:
    """The app on a store in memory, with a virtual clock; a new app if none is configured."""
    from detent.testing.rig import Rig  # noqa: PLC0415 - most tests need nothing of it

    with Rig(_app(str(pytestconfig.getini("detent_app")))) as rig:
        yield rig


def _app(where: str) -> Detent | None:
    from detent.app.detent import Detent  # noqa: PLC0415

    if not where:
        return None
    module, _, name = where.partition(":")
    app = getattr(import_module(module), name or "app", None)
    if not isinstance(app, Detent):
        raise pytest.UsageError(f"detent_app = {where!r} names no Detent app")
    return app
