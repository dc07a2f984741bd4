"""Every test that asks for a `world` gets one of each store, and is audited when it is done."""

from __future__ import annotations

from tests.contract.worlds import backend, pytest_pyfunc_call, session, world

__all__ = ["backend", "pytest_pyfunc_call", "session", "world"]
