"""The safety rules of `rules.py`, applied to the whole tree."""

from collections.abc import Callable
from pathlib import Path

from tests.tidy import rules
from tests.tidy.tree import PURE, ROOT, SRC, files, product_texts, report


def breaches(rule: Callable[[str], list[rules.Finding]], paths: list[Path]) -> str:
    assert paths, "the rule was applied to nothing"
    return report((path, found) for path in paths for found in rule(path.read_text("utf-8")))


def test_pure_packages_depend_on_their_arguments_only() -> None:
    assert breaches(rules.forbidden_in_pure, files(".py", *PURE)) == ""


def test_tests_do_not_sleep() -> None:
    assert breaches(rules.forbidden_in_tests, files(".py", ROOT / "tests")) == ""


def test_no_sql_is_assembled_from_pieces() -> None:
    # A store's `columns.py` builds its statements, from constants of tables and columns alone.
    modules = [file for file in files(".py", SRC) if file.name != "columns.py"]
    assert breaches(rules.assembled_sql, modules) == ""


def test_the_product_mentions_nothing_that_its_readers_do_not_have() -> None:
    assert breaches(rules.workshop_words, list(product_texts())) == ""
