"""List every reference to a member of our classes, by type: file, line, column, name, class that defines it.

usage: cd CHECKOUT; .venv/bin/python refs.py OUT.json
"""
import json, sys, os
from mypy import build
from mypy.config_parser import parse_config_file
from mypy.options import Options
from mypy.main import process_options
from mypy.fscache import FileSystemCache
from mypy.nodes import *
from mypy.types import *

fscache = FileSystemCache()
sources, options = process_options(["--cache-dir", "/tmp/refs/cache", "--no-incremental"], fscache=fscache, program="mypy")
options.export_types = True
options.preserve_asts = True
result = build.build(sources, options, fscache=fscache)
types = result.types
out = []
def classes(t, seen=0):
    t = get_proper_type(t)
    if isinstance(t, Instance): yield t.type
    elif isinstance(t, UnionType):
        for x in t.items: yield from classes(x)
    elif isinstance(t, TypeVarType): yield from classes(t.upper_bound)
    elif isinstance(t, TypeType): yield from classes(t.item)
    elif isinstance(t, (CallableType,)) and t.is_type_obj(): yield t.type_object()
    elif isinstance(t, Overloaded) and t.is_type_obj(): yield t.type_object()
    elif isinstance(t, TupleType): yield t.partial_fallback.type
    elif isinstance(t, LiteralType): yield t.fallback.type
    elif isinstance(t, FunctionLike): yield t.fallback.type
def owner(info, name):
    for c in info.mro:
        if name in c.names: return c.fullname
    return info.fullname

SKIP = {"node", "info", "type", "unanalyzed_type", "inferred_type", "original_def", "names", "defn", "var", "analyzed", "imports", "alias_deps", "fullname", "type_args", "metaclass_type", "typeddict_type"}
ATTRS = {}
def children(n):
    c = type(n)
    if c not in ATTRS:
        ATTRS[c] = [a for a in dir(c) if not a.startswith("__") and a not in SKIP and not callable(getattr(c, a, None))]
    for a in ATTRS[c]:
        try: v = getattr(n, a)
        except Exception: continue
        yield from flat(v)
def flat(v):
    if isinstance(v, (MypyFile,)): return
    if isinstance(v, Node):
        if isinstance(v, (Var, TypeInfo)): return
        yield v
    elif isinstance(v, (list, tuple)):
        for x in v: yield from flat(x)
class V:
    def __init__(self, path): self.path = path; self.seen = set()
    def add(self, line, col, name, who, kind): out.append((self.path, line, col, name, who, kind))
    def go(self, n, cls, inbody):
        if id(n) in self.seen: return
        self.seen.add(id(n))
        if isinstance(n, MemberExpr): self.member(n)
        elif isinstance(n, SuperExpr) and n.info:
            who = next((c.fullname for c in n.info.mro[1:] if n.name in c.names), "?")
            self.add(n.end_line, (n.end_column or 0) - len(n.name), n.name, who, "use")
        elif isinstance(n, CallExpr): self.call(n)
        elif isinstance(n, FuncDef):
            if inbody and cls: self.add(n.line, n.column, n.name, cls.fullname, "def")
        elif isinstance(n, AssignmentStmt) and inbody and cls:
            for l in n.lvalues:
                if isinstance(l, NameExpr): self.add(l.line, l.column, l.name, cls.fullname, "field")
        if isinstance(n, ClassDef):
            for c in children(n): self.go(c, n.info, True)
        elif isinstance(n, (FuncDef, LambdaExpr)):
            for c in children(n): self.go(c, cls, False)
        else:
            for c in children(n): self.go(c, cls, inbody)
    def member(self, e):
        t = types.get(e.expr)
        found = {owner(c, e.name) for c in classes(t)} if t is not None else set()
        if not found and isinstance(e.expr, NameExpr) and isinstance(e.expr.node, TypeInfo): found = {owner(e.expr.node, e.name)}
        if not found and e.node is not None: found = {"@" + (getattr(e.node, "fullname", "") or "")}
        for f in found or {"?"}:
            self.add(e.end_line, (e.end_column or 0) - len(e.name), e.name, f, "use")
    def call(self, e):
        if any(e.arg_names):
            t = types.get(e.callee)
            t = get_proper_type(t) if t is not None else None
            infos = []
            if isinstance(t, CallableType) and t.is_type_obj(): infos = [t.type_object()]
            if getattr(e.callee, "name", "") == "replace" and e.args:
                a = types.get(e.args[0])
                if a is not None: infos = list(classes(a))
            for arg, n in zip(e.args, e.arg_names):
                if n:
                    for i in infos: self.add(arg.line, arg.column, n, owner(i, n), "kw")

for name, f in result.files.items():
    if f.path.startswith(("src", "tests", "bench", "tools", "examples", "./")) or name.startswith("detent"):
        v = V(f.path)
        for d in f.defs: v.go(d, None, False)
json.dump(out, open(sys.argv[1], "w"))
print(len(out), len(result.errors), flush=True)
os._exit(0)
