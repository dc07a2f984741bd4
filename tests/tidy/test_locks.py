"""Whoever installs with pip gets what whoever installs with uv gets."""

import pytest

from tests.tidy.locks import lock_breaches
from tests.tidy.tree import ROOT

UV_LOCK = """
[[package]]
name = "rich"
version = "1.0"
source = { registry = "https://pypi.org/simple" }

[[package]]
name = "detent"
version = "0"
source = { editable = "." }
"""


def test_both_locks_agree() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("uv.lock", "requirements-dev.lock")]
    assert lock_breaches(*texts) == []


def test_equal_locks_are_accepted() -> None:
    assert (
        lock_breaches(UV_LOCK, "rich==1.0 ; python_version > '3' \\\n    --hash=sha256:00\n") == []
    )


@pytest.mark.parametrize(
    ("uv_lock", "requirements", "complaint"),
    [
        (UV_LOCK, "", "rich==1.0 is in uv.lock only"),
        (UV_LOCK, "rich==1.0\ntyper==2\n", "typer==2 is in requirements-dev.lock only"),
        (UV_LOCK, "rich==1.1\n", "rich==1.0 is in uv.lock only"),
        (UV_LOCK.replace("pypi.org", "mirror.corp"), "rich==1.0\n", "mirror.corp is not a public"),
    ],
)
def test_different_locks_are_found(uv_lock: str, requirements: str, complaint: str) -> None:
    assert lock_breaches(uv_lock, requirements)[0].startswith(complaint)
