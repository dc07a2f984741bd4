"""Pictures of lifecycles, of workflows and of supervision trees, as text that other programs show.

`svg` draws boxes and arrows, and graphs in columns. `lifecycles` has the places of the four
lifecycles and draws them, with the path of one record if asked. `palette` has the colours.
`mermaid` writes lifecycles in Mermaid's language. `history` has the moves that pictures highlight.
"""

from __future__ import annotations

from detent.lifecycle.diagram.lifecycles import lifecycle_svg
from detent.lifecycle.diagram.mermaid import lifecycle_mermaid
from detent.lifecycle.diagram.palette import embedded_rules, tone_of
from detent.lifecycle.diagram.svg import Node, graph_svg

__all__ = [
    "Node",
    "embedded_rules",
    "graph_svg",
    "lifecycle_mermaid",
    "lifecycle_svg",
    "tone_of",
]
