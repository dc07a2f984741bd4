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


@pytest.mark.skipif(MAKE is None, reason="needs make")
def test_an_environment_with_a_copy_of_the_package_is_prepared_again(tmp_path: Path) -> None:
    (tmp_path / ".ready").touch()
    words = ["make", "--dry-run", f"VENV={tmp_path}", "check"]

    def told() -> str:
        done = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)  # noqa: S603
        return done.stdout

    assert "Preparing" not in told()
    # As `pip install .` leaves it, which a user is told to do in the same folder.
    copy = tmp_path / "lib" / "python3.11" / "site-packages" / "detent" / "__init__.py"
    copy.parent.mkdir(parents=True)
    copy.touch()
    assert "Preparing" in told()
