"""The small signs of a picture: who may cause a move, and numbers written short."""

from __future__ import annotations

from detent.lifecycle.machine import Actor


def number(value: float) -> str:
    """A coordinate with at most one decimal, the same on every platform."""
    # Rounding first and adding zero turns the -0.0 that some sums end in into a plain 0.
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")


def mark(actor: Actor, x: float, y: float) -> str:
    """A circle for users, a square for workers, a diamond for the system."""
    style = f'class="by-{actor}"'
    if actor is Actor.USER:
        return f'<circle {style} cx="{number(x)}" cy="{number(y)}" r="3.6"/>'
    if actor is Actor.WORKER:
        corner = f'x="{number(x - 3.3)}" y="{number(y - 3.3)}"'
        return f'<rect {style} {corner} width="6.6" height="6.6" rx="1"/>'
    return f'<path {style} d="M{number(x)} {number(y - 4.6)}l4.6 4.6l-4.6 4.6l-4.6 -4.6Z"/>'
