"""`--write` accepts what has changed: the snapshots are written anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write", action="store_true", help="write the snapshots of tests/outside")
