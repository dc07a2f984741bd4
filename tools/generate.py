"""Writes the reference pages and pictures from the lifecycle tables and the errors.

python -m tools.generate            write what is missing or stale
python -m tools.generate --check    change nothing, name what is stale, exit 1 if anything is
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from detent.lifecycle import MACHINES
from detent.lifecycle.diagram import lifecycle_svg
from tools.error_page import error_page
from tools.machine_pages import machine_page
from tools.markdown import GENERATED
from tools.profile_page import profile_page
from tools.view_page import view_page

__all__ = ["generated", "main", "stale"]

ROOT = Path(__file__).resolve().parents[1]
_PAGES, _PICTURES = "docs/reference/lifecycle", "docs/images"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check; the exit code is 1 when a check finds something stale."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only report what is stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to work on")
    options = parser.parse_args(argv)
    texts = generated()
    found = stale(options.root, texts)
    if options.check:
        return _report(found)
    for name in found:
        _write(options.root / name, texts.get(name))
        print(name)
    return 0


def generated() -> dict[str, str]:
    """Every generated file: its path in the checkout and its text."""
    return {
        **{f"{_PAGES}/{name}.md": machine_page(one) for name, one in MACHINES.items()},
        f"{_PAGES}/profiles.md": profile_page(),
        f"{_PAGES}/views.md": view_page(),
        "docs/reference/errors.md": error_page(),
        **{f"{_PICTURES}/{name}.svg": _picture(name) for name in MACHINES},
    }


def stale(root: Path, texts: dict[str, str]) -> list[str]:
    """The files that are missing, differ, or were generated once and are so no longer."""
    changed = [name for name, text in texts.items() if _read(root / name) != text]
    return [*changed, *_left_over(root, texts)]


def _left_over(root: Path, texts: dict[str, str]) -> list[str]:
    found = sorted(file for place in (_PAGES, _PICTURES) for file in (root / place).glob("*"))
    names = {file.relative_to(root).as_posix(): file for file in found}
    return [
        name
        for name, file in names.items()
        if name not in texts and GENERATED in (_read(file) or "")
    ]


def _picture(name: str) -> str:
    return f"{lifecycle_svg(MACHINES[name]).rstrip()}\n<!-- {GENERATED} -->\n"


def _read(file: Path) -> str | None:
    return file.read_bytes().decode("utf-8", errors="replace") if file.is_file() else None


def _write(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink()
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="\n")


def _report(found: Sequence[str]) -> int:
    for name in found:
        print(f"stale: {name}")
    if found:
        print("Run `make generate` and commit what it writes.")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
