"""How much is done in one turn of a loop, while everybody else waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest


class Turns:
    """Counts the calls of a function in each turn of the loop that calls it."""

    def __init__(self, patch: pytest.MonkeyPatch, where: Any, name: str) -> None:
        self.all = self.most = self._now = 0
        called = getattr(where, name)

        def counted(*args: Any, **more: Any) -> Any:
            if not self._now:
                asyncio.get_running_loop().call_soon(self._is_over)
            self.all += 1
            self._now += 1
            self.most = max(self.most, self._now)
            return called(*args, **more)

        patch.setattr(where, name, counted)

    def _is_over(self) -> None:
        self._now = 0
