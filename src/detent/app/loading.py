"""Finds the app in a program: `app.py`, `pkg/app.py:name`, `module` or `module:name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType, TracebackType

from detent.app.detent import Detent
from detent.errors import AppAmbiguous, AppBroken, AppError, AppMissing, AppNotFound

_TRACEBACK_CHARS_MAX = 16_384
_OURS = "detent"
_ALONE = "attempted relative import with no known parent package"


def load(reference: str) -> Detent:
    """The app that the reference names; what it stands for is imported as `python app.py` does it.

    Of a module with one app the name may be left out.
    """
    place, _, name = reference.partition(":")
    if not place:
        raise AppNotFound(f"{reference!r} names no file and no module", reference=reference)
    is_file = place.endswith(".py") or "/" in place
    module = _from_file(reference, Path(place)) if is_file else _from_path(reference, place)
    return _named(reference, module, name) if name else _only(reference, module)


def _from_file(reference: str, path: Path) -> ModuleType:
    path = path.resolve()
    if not path.is_file():
        why = f"There is no file {path}"
        raise AppNotFound(f"{why}: give the path of your program", reference=reference)
    if path.stem == _OURS:
        why = f"{path.name} hides the package {_OURS} from itself and from workers: rename it"
        raise AppNotFound(why, reference=reference)
    _put_first(path.parent)
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    # Others may import it by its name, unless that is taken.
    called = path.stem if known is None else f"{path.stem}_{_digest(path)}"
    return sys.modules.get(called) or _executed(reference, path, called)


def _digest(path: Path) -> str:
    return hashlib.sha256(str(path).encode()).hexdigest()[:12]


def _executed(reference: str, path: Path, called: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(called, path)
    if spec is None or spec.loader is None:
        why = f"{path} is no Python file: its name must end in .py"
        raise AppNotFound(why, reference=reference)
    module = importlib.util.module_from_spec(spec)
    sys.modules[called] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[called]
        raise _broken(reference, error) from error
    return module


def _from_path(reference: str, name: str) -> ModuleType:
    _put_first(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _broken(reference, error) from error
        why = f"There is no module {name!r}, neither in {Path.cwd()} nor among what is installed"
        hint = f". For a file say {name}.py" if Path(f"{name}.py").is_file() else ""
        raise AppNotFound(f"{why}{hint}", reference=reference, module=name) from None
    except (Exception, SystemExit) as error:
        raise _broken(reference, error) from error


def _put_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _broken(reference: str, error: BaseException) -> AppError:
    """Without our own frames and those of the import system: the fault is in none of them."""
    told = traceback.TracebackException.from_exception(_without_ours(error))
    text = "".join(told.format())[-_TRACEBACK_CHARS_MAX:]
    why = (
        f"{reference} cannot be imported: {type(error).__name__}: {error}{_hint(reference, error)}"
    )
    return AppBroken(f"{why}\n\n{text}", reference=reference, error=type(error).__name__)


def _hint(reference: str, error: BaseException) -> str:
    """A file that is part of a package must be named as that."""
    if str(error) != _ALONE:
        return ""
    place, colon, name = reference.partition(":")
    module = ".".join(Path(place).with_suffix("").parts)
    return f". Name it as a module, from the folder above: {module}{colon}{name}"


def _without_ours(error: BaseException) -> BaseException:
    kept = [one for one in _frames(error.__traceback__) if not _is_ours(one)]
    chain: TracebackType | None = None
    for one in reversed(kept):
        chain = TracebackType(chain, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return error.with_traceback(chain)


def _frames(found: TracebackType | None) -> Iterable[TracebackType]:
    while found is not None:
        yield found
        found = found.tb_next


def _is_ours(one: TracebackType) -> bool:
    file = one.tb_frame.f_code.co_filename
    return file == __file__ or "importlib" in file


def _apps(module: ModuleType) -> dict[str, Detent]:
    """The apps in a module by their names; one that has several goes by the first."""
    found: dict[int, tuple[str, Detent]] = {}
    for name, value in list(vars(module).items()):
        if isinstance(value, Detent):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def _only(reference: str, module: ModuleType) -> Detent:
    apps = _apps(module)
    if not apps:
        why = f"{reference} has no app: a module-level name like app = Detent() is looked for"
        raise AppMissing(why, reference=reference)
    if len(apps) > 1:
        first = next(iter(apps))
        why = f"{reference} has several apps ({', '.join(apps)}): say {reference}:{first}"
        raise AppAmbiguous(why, reference=reference, names=list(apps))
    return next(iter(apps.values()))


def _named(reference: str, module: ModuleType, name: str) -> Detent:
    found = getattr(module, name, None)
    if isinstance(found, Detent):
        return found
    what = "there is nothing of that name" if found is None else f"it is a {type(found).__name__}"
    there = ", ".join(_apps(module))
    hint = f"; there is {there}" if there else ""
    why = f"{reference} is no app: {what}{hint}"
    raise AppMissing(why, reference=reference, name=name)
