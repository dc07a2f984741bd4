"""Which files a fleet in development looks at."""

from __future__ import annotations

import signal

import pytest

from tests.fleet.yard import Yard
from tests.waiting import eventually


@pytest.mark.slow
@pytest.mark.parametrize("is_near", [True, False])
def test_a_changed_program_is_started_anew_wherever_it_is(
    yard: Yard, tmp_path_factory: pytest.TempPathFactory, *, is_near: bool
) -> None:
    folder = yard.folder if is_near else tmp_path_factory.mktemp("elsewhere")
    program = folder / "changing.py"
    program.write_text((yard.folder / "program.py").read_text())
    fleet = yard.begin("--reload", "--no-server", verb="up", program=str(program))
    eventually(lambda: yard.is_up(fleet))
    program.write_text(program.read_text().replace("'first'", "'second'"))
    eventually(lambda: "all workers run the new one" in yard.log(fleet))
    job = yard.enqueue("until", "go")
    yard.let_go("go")
    assert job.result(timeout=30) == "second"
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(60) == 0
