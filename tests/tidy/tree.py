"""Which files the safety rules are applied to."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tidy.rules import Finding

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PURE = (SRC / "detent" / "lifecycle", SRC / "detent" / "errors")

_ROOMS = ("src", "tests", "bench", "tools", "examples", "docs", ".ci")
_TEXT = {".css", ".html", ".js", ".json", ".md", ".py", ".sql", ".svg", ".toml", ".txt", ".yml"}
_TEXT_NAMES = {".gitignore", "Makefile", "run"}


def files(suffix: str, *places: Path) -> list[Path]:
    """All files of one kind in the given files and folders, in a stable order."""
    found = (f for place in places for f in ([place] if place.is_file() else place.rglob("*")))
    return sorted(f for f in found if f.suffix == suffix and f.is_file())


def product_texts() -> Iterator[Path]:
    """Every text file that belongs to the product, wherever it lies."""
    places = (*ROOT.iterdir(), *(f for room in _ROOMS for f in (ROOT / room).rglob("*")))
    for file in sorted(places):
        if file.is_file() and (file.suffix in _TEXT or file.name in _TEXT_NAMES):
            yield file


def report(findings: Iterable[tuple[Path, Finding]]) -> str:
    """One clickable line per finding; empty when all is well."""
    return "\n".join(f"{f.relative_to(ROOT)}:{x.line}: {x.message}" for f, x in findings)
