"""What every command of the project relies on, whatever has been removed meanwhile."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

MAKE = shutil.which("make")


@pytest.mark.skipif(MAKE is None, reason="needs make")
def test_the_folder_for_temporary_files_is_made_although_the_environment_is_there(
    tmp_path: Path,
) -> None:
    gone, ready = tmp_path / "gone", tmp_path / ".ready"
    ready.touch()
    words = ["make", "--dry-run", f"BUILD={gone}", f"READY={ready}", "check"]
    told = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
    assert f"mkdir -p {gone / 'tmp'}" in told.stdout
    assert "Preparing" not in told.stdout
