"""The address of an app, told by a function: frameworks put another database in its place."""

from pathlib import Path

from detent import Detent
from detent.errors import BadUrl


def test_it_is_asked_for_when_it_is_needed_and_followed_when_it_changes(tmp_path: Path) -> None:
    place = [f"sqlite://{tmp_path}/real.db"]
    with Detent(lambda: place[0]) as app:

        @app.job
        def greet() -> None: ...

        real = greet.enqueue()
        place[0] = f"sqlite://{tmp_path}/test.db"
        tried = greet.enqueue()
        assert app.drain() == [tried.id]
        place[0] = f"sqlite://{tmp_path}/real.db"
        assert app.drain() == [real.id]
        assert real.status().state == "completed"


def test_nothing_is_asked_before_it_is_needed() -> None:
    def told() -> str:
        raise BadUrl("the settings are not there yet")

    app = Detent(told)

    @app.job
    def greet() -> None: ...

    greet.bind()
    app.close()
