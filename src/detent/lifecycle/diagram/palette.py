"""Colours of pictures by meaning, for light and dark pages, and the stylesheet that applies them.

Live states are coloured by phase, final states by outcome. Colour never carries a meaning alone:
every state shows its name, final states are round, and actors have shapes.
"""

from __future__ import annotations

from typing import Final

from detent.lifecycle.machine import Actor, Phase, State

ROOT_CLASS: Final = "detent-diagram"

# Name of a colour -> its value on a light page, on a dark page.
PALETTE: Final = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "faint": ("#59636e", "#9198a1"),
    "edge": ("#7d8791", "#7d8590"),
    "dim": ("#d5dae0", "#30363d"),
    "accent": ("#0b57d0", "#79b0ff"),
    "user": ("#bf3989", "#f778ba"),
    "worker": ("#0550ae", "#79c0ff"),
    "system": ("#6e7781", "#9ea7b3"),
    "waiting": ("#a87600", "#d29922"),
    "ready": ("#0d857b", "#2dd4bf"),
    "assigned": ("#7c3aed", "#a78bfa"),
    "running": ("#2563eb", "#58a6ff"),
    "good": ("#1a7f37", "#3fb950"),
    "bad": ("#cf222e", "#f85149"),
    "off": ("#6e7781", "#8b949e"),
    "forced": ("#1f2328", "#f0f6fc"),
}
TONES: Final = ("waiting", "ready", "assigned", "running", "good", "bad", "off", "forced")

_FINAL_TONES: Final = {
    "completed": "good",
    "finished": "good",
    "succeeded": "good",
    "discarded": "bad",
    "failed": "bad",
    "killed": "forced",
}
_FONTS: Final = 'system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial, sans-serif'
# `&` stands for the class of the picture: inside a page no rule may reach beyond it.
_RULES: Final = (
    f"& text {{ font: 12.5px {_FONTS}; fill: var(--ink); }}",
    "& .paper { fill: var(--paper); }",
    "& .name { font-size: 14px; font-weight: 600; }",
    "& .detail { font-size: 11px; fill: var(--faint); }",
    "& .mark { font-size: 10px; }",
    "& .box { stroke-width: 1.5px; fill-opacity: 0.11; }",
    "& .line { fill: none; stroke-width: 1.5px; stroke: var(--edge); }",
    "& .tip, & .start { fill: var(--edge); }",
    *(f"& .by-{actor} {{ fill: var(--{actor}); }}" for actor in Actor),
    *(f"& .{tone} .box {{ fill: var(--{tone}); stroke: var(--{tone}); }}" for tone in TONES),
    *(f"& .to-{tone} .line {{ stroke: var(--{tone}); }}" for tone in TONES),
    *(f"& .to-{tone} .tip {{ fill: var(--{tone}); }}" for tone in TONES),
    # Lines share ways, and translucent ones would add up.
    "&.has-path .edge:not(.taken) .line { stroke: var(--dim); }",
    "&.has-path .edge:not(.taken) .tip { fill: var(--dim); }",
    "&.has-path .state:not(.visited) { opacity: 0.4; }",
    "&.has-path .label:not(.taken) text { opacity: 0.4; }",
    "& .taken .line { stroke: var(--accent); stroke-width: 2.5px; }",
    "& .taken .tip { fill: var(--accent); }",
    "& .taken .event { font-weight: 600; fill: var(--accent); }",
    "& .current .box { stroke-width: 3px; fill-opacity: 0.24; }",
)


def tone_of(state: State) -> str:
    """Return the tone that a state is drawn in, one of `TONES`."""
    if state.phase is Phase.DONE:
        return _FINAL_TONES.get(str(state.name), "off")
    return str(state.phase)


def embedded_rules() -> str:
    """Return the rules for a page that embeds pictures; it defines `--ink` and the others."""
    return "".join(rule.replace("&", f".{ROOT_CLASS}") + "\n" for rule in _RULES)


def stylesheet() -> str:
    """Return the style of a standalone picture: light, and dark where the reader prefers that.

    Colours are written out, because some image viewers do not know CSS variables.
    """
    themes = []
    for page in (0, 1):
        text = embedded_rules()
        for name, colours in PALETTE.items():
            text = text.replace(f"var(--{name})", colours[page])
        themes.append(text)
    light, dark = themes
    changed = [rule for rule in dark.splitlines(keepends=True) if rule not in light]
    return f"{light}@media (prefers-color-scheme: dark) {{\n{''.join(changed)}}}\n"
