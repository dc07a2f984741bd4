#!/usr/bin/env python3
"""Merge and rename modules and module-level names of a tree, by tables.

usage: house_merge.py ROOT --merge a.json [...] --rename b.json [...] [--dry]
"""
from __future__ import annotations
import argparse, ast, builtins, json, keyword, os, pathlib, re, subprocess, sys, textwrap
from collections import defaultdict
import libcst as cst
from libcst.metadata import MetadataWrapper, ScopeProvider, ImportAssignment, Assignment, GlobalScope, ClassScope

ap = argparse.ArgumentParser()
ap.add_argument("root"); ap.add_argument("--merge", nargs="*", default=[]); ap.add_argument("--rename", nargs="*", default=[])
ap.add_argument("--dry", action="store_true")
args = ap.parse_args()
ROOT = pathlib.Path(args.root); SRC = ROOT / "src"
def modname(f: pathlib.Path) -> str:
    m = ".".join(f.relative_to(SRC).with_suffix("").parts)
    return m[:-9] if m.endswith(".__init__") else m
files = {modname(f): f for f in SRC.rglob("*.py")}
is_pkg = {m: f.name == "__init__.py" for m, f in files.items()}
others = [f for d in ("tests", "docs", "bench", "tools", "examples") for f in (ROOT / d).rglob("*.py")]
merge: dict[str, dict] = {}
for t in args.merge: merge.update(json.load(open(t)))
target = {m: t for t, e in merge.items() for m in e["from"]}
T = lambda m: target.get(m, m)
renames: dict[tuple[str, str], str] = {}
for t in args.rename:
    for e in json.load(open(t)):
        key = e.get("old") or e.get("collision")
        if key is None or ":" not in key: print("BAD RENAME", e); continue
        mod, name = key.split(":")
        if "." in name: continue  # members: another pass
        renames[mod, name] = e["new"]
problems: list[str] = []
def problem(*a): problems.append(" ".join(map(str, a)))

# ---- what each module defines and imports, by ast --------------------------------------------
trees = {m: ast.parse(f.read_text()) for m, f in files.items()}
def is_tc(n): return isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test)
def defs_of(body):
    for n in body:
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): yield n.name, n
        elif isinstance(n, ast.Assign):
            for t in n.targets:
                for x in ast.walk(t):
                    if isinstance(x, ast.Name): yield x.id, n
        elif isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name): yield n.target.id, n
        elif isinstance(n, (ast.If, ast.Try, ast.With, ast.For)):
            if is_tc(n): continue
            for part in ("body", "orelse", "finalbody"): yield from defs_of(getattr(n, part, []))
            for h in getattr(n, "handlers", []): yield from defs_of(h.body)
defines = {m: {name: n for name, n in defs_of(t.body)} for m, t in trees.items()}
imported: dict[str, dict[str, tuple[str, str | None]]] = {}
for m, t in trees.items():
    found = imported[m] = {}
    for n in ast.walk(t):
        if isinstance(n, ast.ImportFrom) and n.module:
            for a in n.names: found[a.asname or a.name] = (n.module, a.name)
for (m, name) in renames:
    if m not in defines: problem("rename of unknown module", m, name)
    elif name not in defines[m]: problem("rename of unknown name", m, name)
def origin(mod: str, name: str, depth=0) -> tuple[str, str]:
    if depth < 10 and mod in defines and name not in defines[mod] and name in imported[mod]:
        up, n = imported[mod][name]
        if up in files and f"{up}.{n}" not in files: return origin(up, n, depth + 1)
    return mod, name
def new_name(mod: str, name: str) -> str:
    return renames.get(origin(mod, name), name)

# ---- automatic renames for collisions -----------------------------------------------------------
def topo(sources: list[str]) -> list[str]:
    dep = {m: set() for m in sources}
    def top(body):
        for n in body:
            if is_tc(n): continue
            if isinstance(n, (ast.If, ast.Try, ast.With)): yield n; yield from top(n.body)
            else: yield n
    for m in sources:
        for n in top(trees[m].body):
            if isinstance(n, ast.ImportFrom) and n.module:
                for a in n.names:
                    for d in (n.module, f"{n.module}.{a.name}"):
                        if d in dep and d != m: dep[m].add(d)
    done: list[str] = []
    while dep:
        ready = [m for m in sources if m in dep and not dep[m] - set(done)]
        if not ready: problem("cycle inside", sources, dep); ready = [next(iter(dep))]
        done.append(ready[0]); del dep[ready[0]]
    return done
for t, e in merge.items():
    e["order"] = topo([m for m in e["from"] if m in files])
    seen: dict[str, tuple[str, str]] = {}
    e["drop"] = defaultdict(set)
    for m in e["order"]:
        for name, node in defines[m].items():
            new = renames.get((m, name), name)
            if new in ("__all__",): continue
            text = ast.unparse(node)
            if new in seen:
                m0, text0 = seen[new]
                if text == text0 and not isinstance(node, ast.ClassDef): e["drop"][m].add(name); continue
                last = m.rpartition(".")[2]
                auto = f"{name}_{last.upper() if name.isupper() else last}" if not name.lstrip('_')[:1].isupper() or name.isupper() else f"{'_' if name[0]=='_' else ''}{last.title().replace('_','')}{name.lstrip('_')}"
                problem("COLLISION", t, name, "of", m, "and", m0, "->", auto)
                renames[m, name] = auto; seen[auto] = (m, text)
            else: seen[new] = (m, text)

# ---- rewriting one file ---------------------------------------------------------------------------
def dotted(n) -> str: return cst.Module([]).code_for_node(n)
def attr(path: str):
    parts = path.split(".")
    node: cst.BaseExpression = cst.Name(parts[0])
    for p in parts[1:]: node = cst.Attribute(node, cst.Name(p))
    return node

class Rewrite(cst.CSTTransformer):
    def __init__(self, me: str | None, path: str, names, attrs, aliases):
        self.me, self.path = me, path
        self.names, self.attrs, self.aliases = names, attrs, aliases   # node -> new text
    in_all = False
    def visit_Assign(self, node):
        self.in_all = any(isinstance(x.target, cst.Name) and x.target.value == "__all__" for x in node.targets)
    def leave_Assign(self, old, new):
        self.in_all = False
        return new
    def leave_SimpleString(self, old, new):
        if not (self.in_all and self.me): return new
        name = old.evaluated_value
        return new.with_changes(value=json.dumps(new_name(self.me, name)))
    def leave_Name(self, old, new):
        return new.with_changes(value=self.names[old]) if old in self.names else new
    def leave_Attribute(self, old, new):
        if old in self.attrs:
            kind, text = self.attrs[old]
            return cst.Name(text) if kind == "bare" else new.with_changes(attr=cst.Name(text))
        return new
    def leave_SimpleStatementLine(self, old, new):
        if not any(isinstance(s, cst.ImportFrom) for s in old.body): return new
        if len(old.body) != 1: return new
        stmt = old.body[0]
        if stmt.module is None or stmt.relative or isinstance(stmt.names, cst.ImportStar): return new
        mod = dotted(stmt.module)
        if mod.split(".")[0] != "detent": return new
        groups: dict[str, list[tuple[str, str | None]]] = {}
        is_changed = False
        for a in stmt.names:
            name = a.name.value
            asname = a.asname.name.value if a.asname else None
            where, to, alias = self.aliases.get(a, (mod, name, asname))
            if (where, to, alias) != (mod, name, asname): is_changed = True
            if where is None: continue
            groups.setdefault(where, []).append((to, alias))
        if not is_changed: return new
        lines = []
        for where, names in groups.items():
            ia = [cst.ImportAlias(cst.Name(n), asname=cst.AsName(cst.Name(x)) if x and x != n else None) for n, x in dict.fromkeys(names)]
            lines.append(cst.SimpleStatementLine([cst.ImportFrom(attr(where), ia, lpar=cst.LeftParen(), rpar=cst.RightParen())]))
        if not lines: return cst.RemoveFromParent()
        lines[0] = lines[0].with_changes(leading_lines=old.leading_lines, trailing_whitespace=new.trailing_whitespace)
        return cst.FlattenSentinel(lines)

def rewrite(path: pathlib.Path, me: str | None) -> cst.Module:
    wrapper = MetadataWrapper(cst.parse_module(path.read_text()), unsafe_skip_copy=True)
    scopes = {s for s in wrapper.resolve(ScopeProvider).values() if s is not None}
    names: dict = {}; attrs: dict = {}; aliases: dict = {}
    above: dict = {}; spelled: set[str] = set()
    class Above(cst.CSTVisitor):
        def visit_Attribute(self, node):
            if isinstance(node.value, cst.Name): above[node.value] = node
        def visit_Name(self, node): spelled.add(node.value)
        def visit_Attribute_attr(self, node): pass
    wrapper.module.visit(Above())
    def attribute_of(n):
        while isinstance(n, cst.Attribute): n = n.value
        return above.get(n)
    used_as_name: set[str] = set()
    class Bare(cst.CSTVisitor):
        def visit_Attribute(self, node):
            node.value.visit(self); return False
        def visit_Name(self, node): used_as_name.add(node.value)
        def visit_ImportFrom(self, node): return False
        def visit_Arg(self, node):
            node.value.visit(self); return False
    wrapper.module.visit(Bare())
    mine = T(me) if me else None
    def rename_refs(assignment, old, new, scope):
        for ref in assignment.references:
            n = ref.node
            if isinstance(n, cst.Name) and n.value == old: names[n] = new
            elif isinstance(n, cst.Attribute):
                b = n
                while isinstance(b, cst.Attribute): b = b.value
                if isinstance(b, cst.Name) and b.value == old: names[b] = new
    for scope in scopes:
        for a in list(scope.assignments):
            if isinstance(a, ImportAssignment):
                node = a.node
                if not isinstance(node, cst.ImportFrom) or node.module is None: 
                    if isinstance(node, cst.Import) and any(dotted(x.name).startswith("detent.") for x in node.names): problem("plain import in", path, dotted(node))
                    continue
                mod = dotted(node.module)
                if mod.split(".")[0] != "detent": continue
                for al in node.names:
                    bound = (al.asname.name.value if al.asname else al.name.value)
                    if bound != a.name: continue
                    name, asname = al.name.value, (al.asname.name.value if al.asname else None)
                    sub = f"{mod}.{name}"
                    if sub in files and name not in defines.get(mod, {}):
                        to = T(sub)
                        if mine is not None and to == mine:      # module object of a sibling merged into me
                            aliases[al] = (None, None, None)
                            for ref in a.references:
                                top = attribute_of(ref.node)
                                if top is not None: attrs[top] = ("bare", new_name(sub, top.attr.value))
                                else: problem("module object used bare", path, bound)
                        else:
                            parent, _, last = to.rpartition(".")
                            if asname is None and last != name and last in used_as_name:
                                problem("module name is taken", path, last, "so it is imported as", name)
                                asname = name
                            aliases[al] = (parent, last, asname)
                            if asname is None and last != name: rename_refs(a, name, last, scope)
                            for ref in a.references:
                                top = attribute_of(ref.node)
                                if top is not None:
                                    nn = new_name(sub, top.attr.value)
                                    if nn != top.attr.value: attrs[top] = ("attr", nn)
                    else:
                        om, on = origin(mod, name)
                        # a module that only re-exports is bypassed; the names of a package stay the package's
                        to = T(mod) if is_pkg.get(mod) or om == mod else T(om)
                        nn = new_name(mod, name)
                        if mine is not None and to == mine and me != to or (mine is not None and to == mine and mod != me):
                            aliases[al] = (None, None, None)
                            if bound != nn: rename_refs(a, bound, nn, scope)
                        else:
                            if asname is None and nn != name and nn in used_as_name: problem("NAME IS TAKEN", path, name, "->", nn)
                            aliases[al] = (to, nn, asname)
                            if asname is None and nn != name: rename_refs(a, name, nn, scope)
            elif me is not None and isinstance(scope, GlobalScope) and isinstance(a, Assignment) and (me, a.name) in renames:
                nn = renames[me, a.name]
                if nn in used_as_name: problem("NAME IS TAKEN in its own module", path, a.name, "->", nn)
                n = a.node
                if isinstance(n, (cst.FunctionDef, cst.ClassDef)): names[n.name] = nn
                elif isinstance(n, cst.Name): names[n] = nn
                else:
                    problem("assignment of", a.name, "in", me, type(n).__name__)
                rename_refs(a, a.name, nn, scope)
    module = wrapper.module
    return module.visit(Rewrite(me, str(path), names, attrs, aliases))

# ---- strings below constants become comments above ---------------------------------------------------
def is_string(stmt) -> bool:
    return isinstance(stmt, cst.SimpleStatementLine) and len(stmt.body) == 1 and isinstance(stmt.body[0], cst.Expr) and isinstance(stmt.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
def is_assign(stmt) -> bool:
    return isinstance(stmt, cst.SimpleStatementLine) and len(stmt.body) == 1 and isinstance(stmt.body[0], (cst.Assign, cst.AnnAssign))
def comment_lines(text: str, indent: int):
    paragraphs = textwrap.dedent(text.strip()).split("\n")
    wrapped = textwrap.wrap(" ".join(p.strip() for p in paragraphs), 98 - indent)
    return [cst.EmptyLine(indent=True, comment=cst.Comment(f"# {line}")) for line in wrapped]
def to_comments(body, indent):
    out = []
    for stmt in body:
        if is_string(stmt) and out and is_assign(out[-1]):
            text = stmt.body[0].value.evaluated_value
            out[-1] = out[-1].with_changes(leading_lines=[*out[-1].leading_lines, *comment_lines(text, indent)])
        else: out.append(stmt)
    return out
class ClassComments(cst.CSTTransformer):
    depth = 0
    def visit_ClassDef(self, node): self.depth += 1
    def leave_ClassDef(self, old, new):
        self.depth -= 1
        if isinstance(new.body, cst.IndentedBlock):
            return new.with_changes(body=new.body.with_changes(body=to_comments(new.body.body, 4 * (self.depth + 1))))
        return new

# ---- put a target together -----------------------------------------------------------------------
def is_import(stmt) -> bool:
    return isinstance(stmt, cst.SimpleStatementLine) and all(isinstance(s, (cst.Import, cst.ImportFrom)) for s in stmt.body)
def is_type_checking(stmt) -> bool:
    return isinstance(stmt, cst.If) and "TYPE_CHECKING" in dotted(stmt.test) and "not" not in dotted(stmt.test) and all(map(is_import, stmt.body.body)) and stmt.orelse is None
def bindings(stmt):
    for s in stmt.body:
        if isinstance(s, cst.ImportFrom):
            mod = ("." * len(s.relative)) + (dotted(s.module) if s.module else "")
            for al in s.names: yield (al.asname.name.value if al.asname else al.name.value), (mod, al.name.value)
        else:
            for al in s.names:
                yield (al.asname.name.value if al.asname else dotted(al.name).split(".")[0]), (dotted(al.name) if al.asname else dotted(al.name).split(".")[0], None)
def assigned_name(stmt):
    if isinstance(stmt, (cst.FunctionDef, cst.ClassDef)): return stmt.name.value
    if is_assign(stmt):
        s = stmt.body[0]
        t = s.targets[0].target if isinstance(s, cst.Assign) else s.target
        return t.value if isinstance(t, cst.Name) else None
    return None
def alias_import(module: cst.Module, bound: str, alias: str) -> cst.Module:
    """Give an import of this module another name, everywhere in it."""
    w = MetadataWrapper(cst.parse_module(module.code)); names = {}; al_nodes = set()
    for scope in {s for s in w.resolve(ScopeProvider).values() if s is not None}:
        for a in scope.assignments:
            if isinstance(a, ImportAssignment) and a.name == bound and isinstance(scope, GlobalScope):
                for ref in a.references:
                    n = ref.node
                    while isinstance(n, cst.Attribute): n = n.value
                    names[n] = alias
                for al in a.node.names:
                    if (al.asname.name.value if al.asname else dotted(al.name)) == bound: al_nodes.add(al)
    class A(cst.CSTTransformer):
        def leave_Name(self, old, new): return new.with_changes(value=names[old]) if old in names else new
        def leave_ImportAlias(self, old, new): return new.with_changes(asname=cst.AsName(cst.Name(alias))) if old in al_nodes else new
    return w.module.visit(A())

def build(t: str, e: dict) -> str:
    doc = e.get("doc"); bound: dict[str, tuple] = {}; runtime: list[str] = []; typing_only: list[tuple[str, tuple, str]] = []; bodies: list = []
    own = {renames.get((m, n), n) for m in e["order"] for n in defines[m]}
    code = lambda s: cst.Module([s]).code
    for m in e["order"]:
        module = rewrite(files[m], m).visit(ClassComments())
        # import clashes with other sources of this target
        for stmt in module.body:
            stmts = [stmt] if is_import(stmt) else stmt.body.body if is_type_checking(stmt) else []
            for s in stmts:
                for b, what in bindings(s):
                    clash = b in bound and bound[b] != what and not (what[0] == "__future__")
                    if clash or (b in own and what[0] != t and what != (t, b) and b not in defines[m]) :
                        last = what[0].rpartition(".")[2]
                        auto = f"{last.title().replace('_','')}{b}" if b[:1].isupper() and not b.isupper() else f"{last}_{b}".lstrip("_")
                        problem("IMPORT CLASH", t, b, "of", m, what, "against", bound.get(b, "own definition"), "->", auto)
                        module = alias_import(module, b, auto)
        body = list(module.body)
        if body and is_string(body[0]):
            if doc is None and len(e["order"]) == 1: doc = body[0].body[0].value.evaluated_value
            elif doc is None: problem("no docstring for", t)
            body = body[1:]
        body = to_comments(body, 0)
        for stmt in body:
            if is_import(stmt):
                if dotted(stmt.body[0]).startswith("from __future__"): continue
                for b, what in bindings(stmt): bound[b] = what
                runtime.append(code(stmt.with_changes(leading_lines=[l for l in stmt.leading_lines if l.comment])))
            elif is_type_checking(stmt):
                for s in stmt.body.body:
                    for b, what in bindings(s): typing_only.append((b, what))
            else:
                name = assigned_name(stmt)
                old_names = {n for n in e["drop"][m]}
                if name in old_names and name not in {renames.get((m, x)) for x in defines[m]}: continue
                bodies.append(stmt)
    for b, what in typing_only:
        if bound.get(b, what) != what: problem("TYPE CLASH", t, b, what, bound[b])
    lines = sorted({f"    from {mod} import {name}{'' if name == b else f' as {b}'}" for b, (mod, name) in typing_only if b not in bound and mod != t and name})
    out = []
    if doc is not None:
        d = doc.strip()
        out.append(f'"""{d}\n"""\n' if "\n" in d else f'"""{d}"""\n')
    out.append("\nfrom __future__ import annotations\n\n")
    out += runtime
    if lines: out.append("from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n" + "\n".join(lines) + "\n")
    out.append("\n")
    out += [code(s) for s in bodies]
    return "".join(out)

# ---- run ---------------------------------------------------------------------------------------------
written: dict[pathlib.Path, str] = {}; gone: set[pathlib.Path] = set()
in_table = set(target)
for t, e in merge.items():
    try: text = build(t, e)
    except Exception as x: print("FAILED", t, repr(x)); raise
    base = SRC / pathlib.Path(*t.split("."))
    stays_package = is_pkg.get(t, False) and any(T(m).startswith(t + ".") for m in files)
    path = base / "__init__.py" if stays_package else base.with_suffix(".py")
    written[path] = text
    gone |= {files[m] for m in e["from"] if m in files and files[m] != path}
for m, f in files.items():
    if m not in in_table:
        new = rewrite(f, m).code
        if new != f.read_text(): written[f] = new
for f in others:
    new = rewrite(f, None).code
    if new != f.read_text(): written[f] = new
print(*problems, sep="\n"); print(len(merge), "targets,", len(in_table), "modules,", len(written), "files written,", len(gone), "gone")
if args.dry: sys.exit()
for f in gone:
    if f not in written: f.unlink()
for f, text in written.items():
    f.parent.mkdir(parents=True, exist_ok=True); f.write_text(text)
# __all__ and empty packages
for d in sorted((p for p in SRC.rglob("*") if p.is_dir() and p.name != "__pycache__"), key=lambda p: -len(p.parts)):
    pys = [p for p in d.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    if not pys:
        subprocess.run(["rm", "-rf", str(d)])
# ---- texts: dotted names and paths ------------------------------------------------------------------------
moved = {m: t for m, t in target.items() if m != t}
def texts():
    for d in ("src", "tests", "docs", "bench", "tools", "examples", ".ci"):
        for f in (ROOT / d).rglob("*"):
            if f.is_file() and f.suffix in {".py", ".md", ".toml", ".sql", ".yml", ".txt", ".sh", ".json", ".js"} and "snapshots" not in f.parts and "node_modules" not in f.parts: yield f
    for n in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml", "mkdocs.yml", "Makefile", "SECURITY.md"):
        if (ROOT / n).exists(): yield ROOT / n
pairs = {}
for m, t in moved.items():
    pairs[m] = t
    a, b = m.replace(".", "/") + ".py", t.replace(".", "/") + ".py"
    pairs[a] = b
    parts = m.split("."); 
    for k in range(1, len(parts) - 1):
        short, to = "/".join(parts[k:]) + ".py", "/".join(t.split(".")[min(k, len(t.split(".")) - 1):]) + ".py"
        pairs.setdefault(short, to)
for (m, n), nn in renames.items():
    pairs[f"{m}.{n}"] = f"{T(m)}.{nn}"; pairs[f"{m}:{n}"] = f"{T(m)}:{nn}"
new_packages = {t.rpartition(".")[0] for t in merge}
def regex(key):
    # an old module whose name is now a package: only where no submodule follows
    return re.escape(key) + (r"(?!\.[a-z_]+\b)" if key in new_packages and "/" not in key else "")
pattern = re.compile(r"(?<![\w./])(?:src/)?(" + "|".join(regex(k) for k in sorted(pairs, key=len, reverse=True)) + r")(?![\w])") if pairs else None
count = 0
if pattern:
    for f in texts():
        s = f.read_text(errors="surrogateescape")
        new = pattern.sub(lambda x: x[0].replace(x[1], pairs[x[1]]), s)
        if new != s: f.write_text(new, errors="surrogateescape"); count += 1
print(count, "texts changed")
