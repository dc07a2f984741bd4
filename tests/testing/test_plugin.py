"""The plugin, as the tests of a project of users see it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TEST = """
from shop import app, double

def test_it(rig):
    assert rig.app is app
    handle = double.enqueue(2)
    rig.drain()
    assert handle.result() == 4
"""
SHOP = """
from detent import Detent
app = Detent("nosuch:")
nothing = None

@app.job
def double(number: int) -> int:
    return number * 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["shop:app", "shop"])
def test_the_fixture_takes_over_the_configured_app(pytester: pytest.Pytester, where: str) -> None:
    pytester.makepyfile(shop=SHOP, test_shop=TEST)
    pytester.makeini(f"[pytest]\npythonpath = .\ndetent_app = {where}\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_name_that_is_no_app_says_so(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(shop=SHOP, test_shop=TEST)
    pytester.makeini("[pytest]\npythonpath = .\ndetent_app = shop:nothing\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*names no Detent app*"])


def test_a_project_that_has_no_jobs_does_not_wait_for_us() -> None:
    """pytest reads the plugin of every package that is installed."""
    program = (
        "import sys, pytest; known = set(sys.modules); import detent.testing.plugin;"
        " print(*sorted(set(sys.modules) - known))"
    )
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    assert said.stdout.split() == ["detent", "detent.testing", "detent.testing.plugin"]
