"""Every `.sql` file of the product names only states that a lifecycle declares."""

from detent.lifecycle import MACHINES
from tests.tidy.rules import unknown_states
from tests.tidy.tree import SRC, files, report


def test_sql_names_only_states_that_a_lifecycle_declares() -> None:
    known = {state.name for machine in MACHINES.values() for state in machine.states}
    sql = ((file, file.read_text("utf-8")) for file in files(".sql", SRC))
    assert report((file, x) for file, text in sql for x in unknown_states(text, known)) == ""
