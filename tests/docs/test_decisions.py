"""The list of decisions is complete."""

from tests.docs.blocks import ROOT

ADR = ROOT / "docs" / "adr"


def test_every_decision_record_is_listed() -> None:
    listed = (ADR / "index.md").read_text("utf-8")
    records = sorted(path.name for path in ADR.glob("[0-9]*.md"))
    assert [name for name in records if f"({name})" not in listed] == []
