"""The house rules, applied to the whole tree."""

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tidy import rules
from tests.tidy.tree import PURE, ROOT, SRC, files, product_texts, report

MODEL_LINES_MAX = 690
"""What people read to see what a store must do, from the first line to the last."""
MODEL_CODE_MAX = 499
"""The same without blank lines, comments and docstrings: under 500."""


def breaches(rule: Callable[[str], list[rules.Finding]], paths: list[Path]) -> str:
    assert paths, "the rule was applied to nothing"
    return report((path, found) for path in paths for found in rule(path.read_text("utf-8")))


def test_no_module_refers_to_a_forbidden_name() -> None:
    assert breaches(rules.forbidden_anywhere, files(".py", SRC)) == ""


def test_pure_packages_depend_on_their_arguments_only() -> None:
    assert breaches(rules.forbidden_in_pure, files(".py", *PURE)) == ""


def test_tests_neither_sleep_nor_mock() -> None:
    assert breaches(rules.forbidden_in_tests, files(".py", ROOT / "tests")) == ""


def test_no_sql_is_assembled_from_pieces() -> None:
    assert breaches(rules.assembled_sql, files(".py", SRC)) == ""


def test_files_and_functions_are_small() -> None:
    assert breaches(rules.too_long, files(".py", SRC)) == ""


def test_the_model_of_a_store_stays_small_enough_to_be_read() -> None:
    texts = [file.read_text("utf-8") for file in files(".py", SRC / "detent/stores/memory")]
    assert 0 < sum(len(text.splitlines()) for text in texts) <= MODEL_LINES_MAX
    assert 0 < sum(rules.code_lines(text) for text in texts) <= MODEL_CODE_MAX


def test_every_file_name_says_something() -> None:
    named = [(f, rules.says_nothing(f.relative_to(SRC))) for f in files(".py", SRC)]
    assert report((file, found) for file, all_found in named for found in all_found) == ""


def test_the_product_mentions_nothing_that_its_readers_do_not_have() -> None:
    assert breaches(rules.workshop_words, list(product_texts())) == ""


def test_what_is_private_stays_in_its_module() -> None:
    assert breaches(rules.private_imports, files(".py", SRC)) == ""


PACKAGES = [f.parent.relative_to(SRC) for f in files(".py", SRC) if f.name == "__init__.py"]


@pytest.mark.parametrize("package", [".".join(p.parts) for p in PACKAGES])
def test_public_names_are_exactly_those_of_all(package: str) -> None:
    module = importlib.import_module(package)
    declared = getattr(module, "__all__", None)
    if declared is not None:
        # Some are loaded when they are asked for.
        found = {name: getattr(module, name) for name in dir(module)}
        assert rules.export_breaches(declared, found) == []
