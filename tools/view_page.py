"""The reference page about views: what each surface shows, and what others call the same."""

from __future__ import annotations

from detent.lifecycle.job.table import JobState
from detent.lifecycle.profile import Delivery
from detent.lifecycle.views import (
    CATEGORIES,
    DEFAULT_PRIORITY,
    JOBNIK_PRIORITIES,
    OJS_PRIORITIES,
    OJS_WORKFLOW_WORDS,
    OLD_NAMES,
    STAGE_WORDS,
    TELEMETRY,
    VIEWS,
    WORKFLOW_WORDS,
    Extension,
    View,
    ViewName,
)
from detent.lifecycle.views.table import EVERY_DELIVERY, EVERY_PROFILE
from tools.markdown import code, codes, grid, page, section
from tools.view_names import FOREIGN_WORDS, SHAPES, Shape

__all__ = ["view_page"]

_INTRO = """\
Every surface shows all jobs, each in the words of its own document. A view is a function of the
record alone. The first row of its table that fits gives the word; a field without a value is
absent. Readers see only the moves listed here: those of the document, and the extensions, which are
declared because the document does not know them.
"""
_INSTANTS = {
    ViewName.ENGINE: "Instants are milliseconds since the epoch.\n",
}
_FOREIGN_NOTE = "For people who come from another system; a dash means that it has no such state.\n"
_SHAPES_NOTE = (
    "Where each document puts the same thing; a dash means that it has no place for it.\n"
)
_NONE = "-"


def view_page() -> str:
    """The page about all views."""
    return page(
        "Views",
        _INTRO,
        *(section(view.title, *_view(view)) for view in VIEWS.values()),
        section("Other systems", _FOREIGN_NOTE, _foreign()),
        section("Names and shapes", _SHAPES_NOTE, _shapes()),
    )


def _view(view: View) -> list[str]:
    blocks = [
        section("Words", _words(view), level=3),
        section("Fields", *filter(None, [_INSTANTS.get(view.name)]), _fields(view), level=3),
        section("Moves", _moves(view), level=3),
        section("Extensions", _extensions(view), level=3),
    ]
    return [*blocks, *_MORE[view.name]()]


def _words(view: View) -> str:
    rows = [(code(row.word), codes(row.states), row.when.says) for row in view.words]
    return grid(("shown", "state", "when"), rows)


def _fields(view: View) -> str:
    rows = [
        (
            code(field.name),
            code(field.source) if field.take is None else field.source,
            field.when.says,
        )
        for field in view.fields
    ]
    return grid(("field", "from", "shown when"), rows)


def _moves(view: View) -> str:
    sources = dict.fromkeys([None, *(row.word for row in view.words)])
    rows = []
    for source in sources:
        targets = sorted(target for start, target in view.moves if start == source)
        if targets:
            rows.append((code(source) if source else "(new)", codes(targets)))
    return grid(("from", "to"), rows)


def _extensions(view: View) -> str:
    rows = [
        (code(one.source), code(one.target), _concerned(one), one.meaning)
        for one in view.extensions
    ]
    return grid(("from", "to", "for", "why"), rows)


def _concerned(one: Extension) -> str:
    limits = []
    if one.profiles != EVERY_PROFILE:
        limits.append(f"profiles {codes(one.profiles)}")
    if one.deliveries != EVERY_DELIVERY:
        limits.append(f"{codes(one.deliveries)} delivery")
    return ", ".join(limits) or "every job"


def _pairs(title: str, head: tuple[str, str], table: dict[str, str]) -> str:
    rows = [(code(key), code(value)) for key, value in table.items()]
    return section(title, grid(head, rows), level=3)


def _more_ojs() -> list[str]:
    numbers = {name: str(number) for name, number in OJS_PRIORITIES.items()}
    return [
        _pairs("Workflow words", ("workflow state", "shown"), OJS_WORKFLOW_WORDS),
        _pairs("Named priorities", ("name", "priority"), numbers),
    ]


def _picture(view: View) -> str:
    """The moves as a diagram; dotted are those that the document does not know."""
    drawn = ["flowchart LR"]
    drawn += [f"    {row.word}" for row in view.words]
    known = sorted((source, target) for source, target in view.moves if source is not None)
    drawn += [f"    {source} --> {target}" for source, target in known]
    pushed = [one for one in view.extensions if Delivery.PUSH in one.deliveries]
    drawn += [f"    {one.source} -.-> {one.target}" for one in pushed]
    lines = "\n".join(drawn)
    return f"```mermaid\n{lines}\n```\n"


def _more_engine() -> list[str]:
    telemetry = [
        (code(event), code(target), code(name)) for (event, target), name in TELEMETRY.items()
    ]
    categories = {name: category.value for name, category in CATEGORIES.items()}
    return [
        section("Picture", _picture(VIEWS[ViewName.ENGINE]), level=3),
        section("Telemetry", grid(("event", "to", "emitted"), telemetry), level=3),
        _pairs("Failure categories", ("code", "category"), categories),
        _pairs("Old names", ("now", "before"), OLD_NAMES),
    ]


def _more_jobnik() -> list[str]:
    numbers = {name: str(number) for name, number in JOBNIK_PRIORITIES.items()}
    return [
        _pairs("Stage words", ("step state", "shown"), STAGE_WORDS),
        _pairs("Job words", ("workflow state", "shown"), WORKFLOW_WORDS),
        _pairs("Priorities", ("name", "priority"), numbers),
        f"Without a priority a job gets {code(DEFAULT_PRIORITY)}.\n",
    ]


_MORE = {
    ViewName.OJS: _more_ojs,
    ViewName.REST: list[str],
    ViewName.ENGINE: _more_engine,
    ViewName.JOBNIK: _more_jobnik,
}


def _foreign() -> str:
    rows = [
        (code(state), *(_foreign_cell(system, state) for system in FOREIGN_WORDS))
        for state in JobState
    ]
    return grid(("Detent", *FOREIGN_WORDS), rows)


def _foreign_cell(system: str, state: str) -> str:
    word = FOREIGN_WORDS[system].get(state)
    return _NONE if word is None else code(word)


def _shapes() -> str:
    head = ("thing", "inside Detent", *(view.title for view in VIEWS.values()))
    return grid(head, [(shape.thing, shape.inside, *_slots(shape)) for shape in SHAPES])


def _slots(shape: Shape) -> list[str]:
    cells = []
    for view in VIEWS.values():
        found = shape.slot(view.name)
        owner = "" if found is None or found.owner == "job" else f"; {found.owner}"
        cells.append(_NONE if found is None else f"{code(found.name)} ({found.kind}{owner})")
    return cells
