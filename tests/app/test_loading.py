"""Finding the app in a program, and saying clearly why there is none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from detent import Detent
from detent.app.loading import load
from detent.errors import AppAmbiguous, AppBroken, AppError, AppMissing, AppNotFound

APP = "from detent import Detent\napp = Detent('memory:')\n"
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file of a program into the working directory, and forgets its imports later."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    yield written
    for name in set(sys.modules) - known:
        del sys.modules[name]


def refused(reference: str, kind: type[AppError]) -> str:
    with pytest.raises(kind) as told:
        load(reference)
    assert told.value.fields["reference"] == reference
    assert not told.value.retryable
    return told.value.message


@pytest.mark.parametrize(
    "reference", ["shop_a.py", "shop_a.py:app", "shop_a", "shop_a:app", "./shop_a.py"]
)
def test_every_way_to_say_it(write: Write, reference: str) -> None:
    write("shop_a.py", APP)
    assert isinstance(load(reference), Detent)


def test_an_absolute_path_and_a_file_in_a_folder(write: Write) -> None:
    path = write("pkg_b/shop_b.py", f"import beside_b\n{APP}")
    write("pkg_b/beside_b.py", "")
    app = load("pkg_b/shop_b.py")
    assert load(str(path)) is app
    assert sys.path[0] == str(path.parent)


def test_a_module_in_a_package(write: Write) -> None:
    write("pkg_c/__init__.py", "")
    write("pkg_c/shop_c.py", f"from . import beside_c\n{APP}")
    write("pkg_c/beside_c.py", "")
    assert isinstance(load("pkg_c.shop_c:app"), Detent)


def test_what_imports_the_program_gets_the_same_one(write: Write) -> None:
    write("shop_d.py", f"{APP}import tasks_d\n")
    write("tasks_d.py", "from shop_d import app\n@app.job\ndef add() -> None: ...\n")
    assert list(load("shop_d.py").jobs) == ["add"]


def test_a_file_whose_name_is_taken_is_loaded_all_the_same(write: Write) -> None:
    write("json.py", APP)
    app = load("json.py")
    assert isinstance(app, Detent)
    assert load("json.py") is app


def test_several_names_of_one_app_are_one(write: Write) -> None:
    write("shop_e.py", f"{APP}jobs = app\n")
    assert isinstance(load("shop_e.py"), Detent)


def test_several_apps_want_a_name(write: Write) -> None:
    write("shop_f.py", f"{APP}other = Detent('memory:')\n")
    told = refused("shop_f.py", AppAmbiguous)
    assert "app, other" in told
    assert "shop_f.py:app" in told
    assert isinstance(load("shop_f.py:other"), Detent)


def test_no_app(write: Write) -> None:
    write("shop_g.py", "x = 1\n")
    assert "app = Detent()" in refused("shop_g.py", AppMissing)


@pytest.mark.parametrize(("name", "why"), [("gone", "nothing of that name"), ("x", "it is a int")])
def test_a_name_that_is_no_app(write: Write, name: str, why: str) -> None:
    write("shop_h.py", f"{APP}x = 1\n")
    told = refused(f"shop_h.py:{name}", AppMissing)
    assert why in told
    assert "there is app" in told


def test_no_such_file(write: Write) -> None:
    write("shop_i.py", APP)
    assert "/gone.py" in refused("gone.py", AppNotFound)
    assert "names no file" in refused(":app", AppNotFound)


def test_no_such_module(write: Write) -> None:
    write("pkg_j/__init__.py", "")
    assert "no module 'gone_j'" in refused("gone_j", AppNotFound)
    assert "no module 'pkg_j.gone'" in refused("pkg_j.gone", AppNotFound)


def test_a_file_that_is_no_python(write: Write) -> None:
    write("folder_k/shop_k", APP)
    assert "must end in .py" in refused("folder_k/shop_k", AppNotFound)


@pytest.mark.parametrize("reference", ["shop_l.py", "shop_l"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import gone_l\n", "No module named 'gone_l'"),
        ("def f():\n    raise ValueError('bad')\nf()\n", "in f"),
        ("x = (\n", "was never closed"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    ],
)
def test_an_import_error_comes_with_the_users_own_traceback(
    write: Write, reference: str, text: str, why: str
) -> None:
    write("shop_l.py", text)
    told = refused(reference, AppBroken)
    assert why in told
    assert "shop_l.py" in told
    assert "importlib" not in told
    assert "loading.py" not in told
    assert "shop_l" not in sys.modules


def test_a_broken_program_can_be_mended(write: Write) -> None:
    write("shop_m.py", "1 / 0\n")
    refused("shop_m.py", AppBroken)
    write("shop_m.py", APP + "# longer, so that it is not taken for the same\n")
    assert isinstance(load("shop_m.py"), Detent)
