"""The reference page about profiles: their table, their error codes, what each command does."""

from __future__ import annotations

from collections.abc import Iterable

from detent.lifecycle.profile import PROFILES, Deadlines, Profile
from tools.command_matrix import Cell, matrix
from tools.markdown import code, codes, grid, page, section

__all__ = ["profile_page"]

_INTRO = """\
A job's profile is fixed when it is created and says what differs between the ways in: what a lost
worker costs, how a running job is called off, what a deploy does to it, what "again" means.
"""
_CODES_NOTE = "The error code of an attempt that Detent itself has ended, by state and event:\n"
_MATRIX_NOTE = """\
What every command does to a first-attempt job in every state, asked of the code itself. An arrow is
a move, with the events of its commit; *recorded* is an amendment, *nothing to do* changes nothing;
everything else is refused with the code shown.
"""
_SAME_NOTE = "As for `{first}`.\n"
_DIFFERENT_NOTE = "As for `{first}`, but for these rows:\n"
_SECOND_US = 1_000_000
_Rows = dict[tuple[str, str], list[str]]


def profile_page() -> str:
    """The page about all profiles."""
    profiles = tuple(PROFILES.values())
    return page(
        "Profiles",
        _INTRO,
        section("The table", _table(profiles)),
        section("Error codes", _CODES_NOTE, _error_codes(profiles)),
        section("What each command does", _MATRIX_NOTE, *_matrices()),
    )


def _table(profiles: Iterable[Profile]) -> str:
    head = (
        "profile",
        "failures allowed",
        "a loss charges",
        "losses allowed",
        "wire lease",
        "cancel of a running job",
        "on drain",
        "again",
        "delivery",
        "limits (available, pending, active)",
        "claimed over",
    )
    return grid(head, [_row(profile) for profile in profiles])


def _row(profile: Profile) -> tuple[str, ...]:
    fixed = ", fixed" if profile.allowed_is_fixed else ""
    spared = "" if profile.poisoned_over_wire else ", the end of a wire lease is never the last"
    return (
        code(profile.name),
        f"{profile.allowed}{fixed}",
        profile.loss.value,
        f"{profile.losses_allowed}{spared}",
        _seconds(profile.lease_us),
        profile.cancel.value,
        profile.drain.value,
        profile.again.value,
        profile.delivery.value,
        _limits(profile.deadlines),
        codes(profile.claimed_over),
    )


def _limits(limits: Deadlines) -> str:
    each = (limits.available_us, limits.pending_us, limits.active_us)
    return ", ".join(_seconds(one) for one in each) if any(each) else "none"


def _seconds(length_us: int | None) -> str:
    return "none" if length_us is None else f"{length_us // _SECOND_US} s"


def _error_codes(profiles: Iterable[Profile]) -> str:
    rows = [
        (code(profile.name), code(state), code(event), code(word))
        for profile in profiles
        for (state, event), word in profile.codes.items()
    ]
    return grid(("profile", "in", "event", "code"), rows)


def _matrices() -> list[str]:
    cells = matrix()
    first, *others = PROFILES
    base = _rows(cells, first)
    blocks = [section(first, _commands(cells, base), level=3)]
    for name in others:
        rows = _rows(cells, name)
        changed = {key: row for key, row in rows.items() if row != base[key]}
        note = (_DIFFERENT_NOTE if changed else _SAME_NOTE).format(first=first)
        table = [_commands(cells, changed)] if changed else []
        blocks.append(section(name, note, *table, level=3))
    return blocks


def _rows(cells: Iterable[Cell], profile: str) -> _Rows:
    rows: _Rows = {}
    for cell in cells:
        if cell.profile == profile:
            rows.setdefault((cell.command, cell.actor), []).append(_answer(cell))
    return rows


def _answer(cell: Cell) -> str:
    if cell.refused is not None:
        return cell.refused
    if not cell.events:
        return "*nothing to do*"
    if cell.ends_in == cell.state and len(cell.events) == 1:
        return "*recorded*"
    return f"→ {code(cell.ends_in)} ({codes(cell.events)})"


def _commands(cells: Iterable[Cell], rows: _Rows) -> str:
    situations = dict.fromkeys(_situation(cell) for cell in cells)
    body = [(f"{code(command)} by {actor}", *row) for (command, actor), row in rows.items()]
    return grid(("command", *situations), body)


def _situation(cell: Cell) -> str:
    return f"{code(cell.state)}, asked to stop" if cell.cancelling else code(cell.state)
