"""What a piece of Python refers to, with import aliases resolved to full dotted names."""

import ast
import builtins
from collections.abc import Iterator


def references(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported, attribute or builtin name in the tree as (line, dotted name)."""
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, name) for _, name in _bindings(node))
        elif isinstance(node, ast.Name | ast.Attribute) and (name := _dotted(node, aliases)):
            yield node.lineno, name


def calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Every call whose callee has a dotted name, with that name."""
    aliases = _aliases(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _dotted(node.func, aliases)):
            yield node, name


def _aliases(tree: ast.AST) -> dict[str, str]:
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    return {local: name for node in imports for local, name in _bindings(node)}


def _bindings(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """The (local name, dotted origin) pairs that an import statement creates."""
    for alias in node.names:
        if isinstance(node, ast.ImportFrom):
            yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"
        elif alias.asname:
            yield alias.asname, alias.name
        else:
            # `import a.b` binds `a`, so attribute chains resolve from `a` by themselves; the
            # second pair (a local name nobody can write) keeps the full path visible.
            root = alias.name.partition(".")[0]
            yield root, root
            yield alias.name, alias.name


def _dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value, aliases)
        return f"{owner}.{node.attr}" if owner else None
    if not isinstance(node, ast.Name):
        return None
    if node.id in aliases:
        return aliases[node.id]
    return node.id if hasattr(builtins, node.id) else None
