"""Index of member references with the class that owns each: run in a tree with src, tests, ..."""
import json, sys
from mypy import build, options as mo
from mypy.config_parser import parse_config_file
from mypy.find_sources import create_source_list
from mypy.fscache import FileSystemCache
from mypy.traverser import TraverserVisitor
from mypy.nodes import *
from mypy.types import *
import io
o=mo.Options()
parse_config_file(o,lambda:None,'pyproject.toml',io.StringIO(),io.StringIO())
o.export_types=True; o.preserve_asts=True; o.incremental=False; o.python_executable='/work/main/.venv/bin/python'
o.cache_dir='/dev/null'; o.fine_grained_incremental=False; o.use_builtins_fixtures=False
from mypy.modulefinder import get_search_dirs
o.namespace_packages=True
fs=FileSystemCache()
srcs=create_source_list(['src','tests','bench','tools','examples'],o,fs)
res=build.build(srcs,o,fscache=fs,stdout=sys.stderr,stderr=sys.stderr)
types=res.types
print('errors',len(res.errors),file=sys.stderr); print(res.errors[:10],file=sys.stderr)
rows=[]
def owners(t,name,out):
    t=get_proper_type(t)
    if isinstance(t,Instance):
        i=t.type
        for b in i.mro:
            if name in b.names: out.add(b.fullname); break
        else: out.add(i.fullname)
    elif isinstance(t,UnionType):
        for x in t.items: owners(x,name,out)
    elif isinstance(t,TypeVarType): owners(t.upper_bound,name,out)
    elif isinstance(t,TypeType): owners(t.item,name,out)
    elif isinstance(t,TupleType): owners(t.partial_fallback,name,out)
    elif isinstance(t,(CallableType,)):
        if t.is_type_obj(): owners(t.ret_type,name,out)
    elif isinstance(t,Overloaded):
        if t.items and t.items[0].is_type_obj(): owners(t.items[0].ret_type,name,out)
    elif isinstance(t,LiteralType): owners(t.fallback,name,out)
    elif isinstance(t,AnyType): out.add('ANY')
    elif isinstance(t,TypedDictType): pass

def names_in(e):
    if isinstance(e,NameExpr): yield e
    elif isinstance(e,CallExpr):
        yield from names_in(e.callee)
        for x in e.args: yield from names_in(x)
    elif isinstance(e,(TupleExpr,ListExpr,SetExpr)):
        for x in e.items: yield from names_in(x)
    elif isinstance(e,MemberExpr): yield from names_in(e.expr)
from mypy.patterns import Pattern, ClassPattern
SKIP={'node','info','type','unanalyzed_type','analyzed','line','column','end_line','end_column','names','definition','original_def','var','alias_tvars','mod','target','path','fullname','callee_type'}
def kids(n):
    seen=set()
    for c in type(n).__mro__:
        for a in getattr(c,'__mypyc_attrs__',()) :
            if a in SKIP or a in seen: continue
            seen.add(a)
            try: v=getattr(n,a)
            except Exception: continue
            yield from flat(v)
def flat(v):
    if isinstance(v,(Statement,Expression,Pattern,MypyFile,Argument,FuncItem)): yield v
    elif isinstance(v,(list,tuple)):
        for x in v: yield from flat(x)
names=[]
WORDS=set('ask asks coalescer identity fates hurdle hurdles rival rivals births birth mould moulds entry order part parts kept owner wish wishes directive orders told found mark beside change changes verb effects story door doors facts sight patient shut pulse members member members site eyes graves proof crew life care site eyes far place author choice sure wanted declared enqueueing seated coming poster hook hooks listener tail work unit units shown why page holding ending stay stays going asked one made said answered listed progress'.split())
class V:
    def __init__(s,path):
        s.path=path; s.seen=set()
    def walk(s,top):
        stack=[top]
        while stack:
            n=stack.pop()
            if id(n) in s.seen: continue
            s.seen.add(id(n)); s.visit(n)
            stack.extend(kids(n))
    def visit(s,n):
        if isinstance(n,ClassPattern):
            out=set(); nd=n.class_ref.node
            if isinstance(nd,TypeInfo): out.add(nd.fullname)
            for k in n.keyword_keys: rows.append((s.path,n.line,n.column,'pattern',k,sorted(out)))
        if isinstance(n,ClassDef): s.classdef(n)
        elif isinstance(n,MemberExpr): s.member(n)
        elif isinstance(n,NameExpr) and n.name in WORDS: names.append((s.path,n.line,n.column,n.name,str(types.get(n))[:160]))
        if isinstance(n,SuperExpr) and n.info is not None:
            o=[b.fullname for b in n.info.mro[1:] if n.name in b.names][:1]
            rows.append((s.path,n.line,n.column,'super',n.name,o))
        if isinstance(n,FuncDef):
            for a in n.arguments:
                if a.variable.name in WORDS: names.append((s.path,a.variable.line,a.variable.column,a.variable.name,'ARG '+str(a.variable.type)[:160]))
        elif isinstance(n,CallExpr): s.call(n)
        return True
    def classdef(s,n):
        I=n.info.fullname
        local=set(n.info.names)
        for st in n.defs.body:
            if isinstance(st,AssignmentStmt):
                for l in st.lvalues:
                    for x in names_in(l): rows.append((s.path,x.line,x.column,'def',x.name,[I]+[b.fullname for b in n.info.mro[1:] if x.name in b.names]))
                for x in names_in(st.rvalue):
                    if x.name in local: rows.append((s.path,x.line,x.column,'clsname',x.name,[I]))
            fs=[]
            if isinstance(st,FuncDef): fs=[st]
            elif isinstance(st,Decorator): fs=[st.func]
            elif isinstance(st,OverloadedFuncDef): fs=[i.func if isinstance(i,Decorator) else i for i in st.items]
            for f in fs:
                rows.append((s.path,f.line,f.column,'def',f.name,[I]+[b.fullname for b in n.info.mro[1:] if f.name in b.names]))
    def member(s,n):
        out=set(); t=types.get(n.expr)
        if t is not None: owners(t,n.name,out)
        if not out and isinstance(n.expr,RefExpr) and isinstance(n.expr.node,TypeInfo):
            owners_i=n.expr.node
            for b in owners_i.mro:
                if n.name in b.names: out.add(b.fullname); break
        if not out and isinstance(n.expr,RefExpr) and isinstance(n.expr.node,MypyFile): out.add('MODULE '+n.expr.node.fullname)
        rows.append((s.path,n.line,n.column,'attr',n.name,sorted(out),n.end_line,n.end_column))
    def call(s,n):
        if any(n.arg_names):
            t=types.get(n.callee); out=set()
            full=getattr(n.callee,'fullname','') or ''
            if t is not None:
                p=get_proper_type(t)
                if isinstance(p,CallableType) and p.is_type_obj(): owners(p.ret_type,'__',out)
                elif isinstance(p,Overloaded) and p.items[0].is_type_obj(): owners(p.items[0].ret_type,'__',out)
            if full.endswith('replace') and n.args:
                tt=types.get(n.args[0])
                if tt is not None: owners(tt,'__',out)
            for a,v in zip(n.arg_names,n.args):
                if a: rows.append((s.path,v.line,v.column,'kw' if out else 'param',a,sorted(out) if out else [full or getattr(n.callee,'name','')]))
for m,f in res.graph.items():
    if f.tree is None or not f.path: continue
    if not (f.path.startswith(('src','tests','bench','tools','examples')) or '/tmp/w/snap/' in f.path): continue
    V(f.path).walk(f.tree)
mro={}
for m,f in res.graph.items():
    if f.tree is None: continue
    for k,s in f.tree.names.items():
        if isinstance(s.node,TypeInfo) and s.node.fullname.startswith(('detent','tests','bench')): mro[s.node.fullname]=[b.fullname for b in s.node.mro]
json.dump({'rows':rows,'mro':mro,'names':names},open('/tmp/w/refs.json','w'))
print(len(rows),file=sys.stderr)
