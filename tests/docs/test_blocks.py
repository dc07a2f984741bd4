"""The runner of documented examples fails when an example does."""

import sys

import pytest

from tests.docs.blocks import BlockError, matches, parse, run_page


def fenced(info: str, text: str) -> str:
    return f"```{info}\n{text}\n```\n"


GOOD = {
    "python": fenced("python", "x = 1\nassert x"),
    "python with output": fenced("python", "print('a')\nprint('b')") + fenced("text", "a\nb"),
    "python with a gap": fenced("python", "print('a')") + "\n\n" + fenced("output", "a"),
    "shared namespace": fenced("python", "x = 1") + "\nwords\n\n" + fenced("python", "assert x"),
    "unrelated text": fenced("python", "print('a')") + "words\n" + fenced("text", "b"),
    "console": fenced("console", "$ echo one\none\n$ echo two"),
    "console with ellipsis": fenced("console", "$ printf 'a\\nb\\nc\\n'\na\n...\nc"),
    "console with output block": fenced("console", "$ echo one") + fenced("text", "one"),
    "console over two lines": fenced("console", "$ echo one \\\n  two\none two"),
    "declared command": fenced(
        "console no-run", "$ git clone URL detent && cd detent\n$ make test"
    ),
    "toml": fenced("toml", "[a]\nb = 1"),
    "json": fenced("json", '{"a": 1}'),
    "mermaid": fenced("mermaid", "%% a note\nflowchart TD\n  a --> b"),
    "sql": fenced("sql", "SELECT 1"),
    "indented": "- item\n\n    ```python\n    if True:\n        x = 1\n    ```\n",
    "longer fence": "````text\n```\n````\n",
}

BAD = {
    "a python error": (fenced("python", "1 / 0"), "ZeroDivisionError"),
    "a syntax error": (fenced("python", "def"), "SyntaxError"),
    "a failing assertion": (fenced("python", "assert 1 == 2"), "AssertionError"),
    "another output": (fenced("python", "print('a')") + fenced("text", "b"), "another output"),
    "a missing output": (fenced("python", "x = 1") + fenced("output", "b"), "another output"),
    "a failing command": (fenced("console", "$ exit 3"), "ended with 3"),
    "an unknown command": (fenced("console", "$ no-such-command-here"), "ended with 127"),
    "another console output": (fenced("console", "$ echo one\ntwo"), "something else"),
    "a console without a command": (fenced("console", "echo one"), "starts with a line"),
    "an undeclared recursion": (fenced("console", "$ make test"), "declare the block"),
    "a hidden recursion": (fenced("console", "$ true && make check"), "declare the block"),
    "a needless no-run": (fenced("console no-run", "$ echo one"), "can be run"),
    "a hidden needless no-run": (fenced("console no-run", "$ make test && echo"), "can be run"),
    "bad toml": (fenced("toml", "a ="), "not valid toml"),
    "bad json": (fenced("json", "{"), "not valid json"),
    "a bad diagram": (fenced("mermaid", "a --> b"), "not valid mermaid"),
    "an empty diagram": (fenced("mermaid", ""), "not valid mermaid"),
    "no language": (fenced("", "x"), "without a language"),
    "an unknown language": (fenced("cobol", "x"), "no way to check"),
    "a python no-run": (fenced("python no-run", "x"), "no way to check"),
    "an open fence": ("```python\nx = 1\n", "never closed"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_page_passes(name: str) -> None:
    run_page(GOOD[name], "page.md")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_page_fails(name: str) -> None:
    page, complaint = BAD[name]
    with pytest.raises(BlockError, match=complaint):
        run_page(page, "page.md")


def test_a_failure_names_the_page_and_the_line() -> None:
    with pytest.raises(BlockError, match=r"^docs/page\.md:3: "):
        run_page("# Title\n\n" + fenced("python", "1 / 0"), "docs/page.md")


def test_pages_share_nothing() -> None:
    run_page(fenced("python", "leaked = 1"), "first.md")
    with pytest.raises(BlockError, match="NameError"):
        run_page(fenced("python", "leaked"), "second.md")
    assert "documented_example" not in sys.modules


def test_annotations_of_a_documented_class_can_be_resolved() -> None:
    source = (
        "import typing\nclass A:\n    other: 'A'\nassert typing.get_type_hints(A)['other'] is A"
    )
    run_page(fenced("python", source), "page.md")


def test_a_block_knows_whether_it_follows_directly() -> None:
    page = fenced("python", "x") + fenced("text", "y") + "words\n" + fenced("text", "z")
    assert [block.follows for block in parse(page, "page.md")] == [False, True, False]


@pytest.mark.parametrize(
    ("expected", "printed", "equal"),
    [
        ("a\n...", "a\nb\nc\n", True),
        ("...\nc", "a\nb\nc\n", True),
        ("a\n...\nc", "a\nc\n", True),
        ("a  \nb", "a\nb   \n", True),
        ("a", "a\nb\n", False),
        ("a.c", "abc\n", False),
    ],
)
def test_outputs_are_compared_line_by_line(expected: str, printed: str, equal: bool) -> None:
    assert matches(expected, printed) is equal
