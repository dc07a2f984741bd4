"""Pictures of a lifecycle: SVG, Mermaid and Markdown, drawn from the table itself."""

from detent.lifecycle.diagram.layout import Layout, lay_out
from detent.lifecycle.diagram.markdown import table
from detent.lifecycle.diagram.mermaid import to_mermaid
from detent.lifecycle.diagram.palette import Theme
from detent.lifecycle.diagram.svg import to_svg

__all__ = ["Layout", "Theme", "lay_out", "table", "to_mermaid", "to_svg"]
