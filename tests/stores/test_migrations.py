"""Which migrations can be deployed, and who may use the tables they lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from detent.errors import SchemaAhead, SchemaBehind
from detent.stores.migrations import Migration, TableVersion, missing, need_all, read

EXPAND, MORE, CONTRACT = (
    Migration(1, "first", 1, "1"),
    Migration(2, "add", 1, "2"),
    Migration(3, "drop", 2, "3"),
)


def folder(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / f"{name}.sql").write_text(text, "utf-8")
    return path


def test_files_are_read_in_their_order(tmp_path: Path) -> None:
    made = folder(
        tmp_path,
        **{"0002_two_words": "-- why\n-- min_code: 1\nB;\n", "0001_first": "-- min_code: 1\nA;\n"},
    )
    assert read(made) == (
        Migration(1, "first", 1, "-- min_code: 1\nA;\n"),
        Migration(2, "two_words", 1, "-- why\n-- min_code: 1\nB;\n"),
    )
    assert [one.file for one in read(made)] == ["0001_first", "0002_two_words"]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"0001_first": "A;"}, "min_code"),
        ({"0001_first": "-- min_code: 1\n-- min_code: 1\n"}, "min_code"),
        ({"first": "-- min_code: 1\n"}, "NNNN_name"),
        ({"0001_first": "-- min_code: 2\n"}, "could use the result"),
        ({"0002_second": "-- min_code: 1\n"}, "1, 2, 3"),
        ({"0001_a": "-- min_code: 1\n", "0003_c": "-- min_code: 1\n"}, "1, 2, 3"),
        ({"0001_a": "-- min_code: 1\n", "0001_b": "-- min_code: 1\n"}, "1, 2, 3"),
        (
            {
                "0001_a": "-- min_code: 1\n",
                "0002_b": "-- min_code: 2\n",
                "0003_c": "-- min_code: 1\n",
            },
            "0003_c would let code back in",
        ),
    ],
)
def test_what_could_not_be_deployed_is_refused(
    tmp_path: Path, files: dict[str, str], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        read(folder(tmp_path, **files))


def test_what_the_tables_have_not_seen_is_missing() -> None:
    known = [EXPAND, MORE, CONTRACT]
    assert missing(known, TableVersion()) == known
    assert missing(known, TableVersion(1, 1)) == [MORE, CONTRACT]
    assert missing(known, TableVersion(3, 2)) == []


def test_old_code_goes_on_beside_tables_that_were_only_added_to() -> None:
    assert missing([EXPAND], TableVersion(MORE.version, MORE.min_code)) == []
    need_all([EXPAND], TableVersion(MORE.version, MORE.min_code))


def test_code_that_is_older_than_the_tables_admit_is_refused() -> None:
    with pytest.raises(SchemaAhead) as refused:
        missing([EXPAND], TableVersion(CONTRACT.version, CONTRACT.min_code))
    assert refused.value.fields == {"version": 3, "known": 1, "min_code": 2}
    assert missing([EXPAND, MORE], TableVersion(CONTRACT.version, CONTRACT.min_code)) == []


def test_tables_that_lack_something_are_behind() -> None:
    with pytest.raises(SchemaBehind) as refused:
        need_all([EXPAND, MORE], TableVersion(1, 1))
    assert refused.value.fields == {"version": 1, "known": 2}
    # Without its address another store would be made, and all would look well.
    assert "detent migrate --store URL" in refused.value.message
    with pytest.raises(SchemaBehind, match="no tables of Detent yet"):
        need_all([EXPAND], TableVersion(0, 0))
