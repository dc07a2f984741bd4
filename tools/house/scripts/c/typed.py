import sys,json,pickle,time
from mypy import build
from mypy.main import process_options
from mypy.nodes import *
from mypy.traverser import TraverserVisitor, ExtendedTraverserVisitor
from mypy.types import *
from mypy.types import get_proper_type
exec(open("/tmp/c/members.py").read())
names={o for _,o,_ in M}
sources,options=process_options(["--cache-dir=/tmp/c/mypycache","--no-incremental","src","tests","bench","tools"])
options.export_types=True; options.preserve_asts=True; options.incremental=False
t=time.time()
res=build.build(sources,options)
print("built",time.time()-t,len(res.errors),file=sys.stderr)
for e in res.errors[:5]: print(e,file=sys.stderr)
types=res.types
def classes(tp,depth=0):
    tp=get_proper_type(tp)
    if tp is None or depth>6: return
    if isinstance(tp,Instance): yield tp.type
    elif isinstance(tp,UnionType):
        for i in tp.items: yield from classes(i,depth+1)
    elif isinstance(tp,TypeVarType):
        yield from classes(tp.upper_bound,depth+1)
        for v in tp.values: yield from classes(v,depth+1)
    elif isinstance(tp,TypeType): yield from classes(tp.item,depth+1)
    elif isinstance(tp,TupleType): yield from classes(tp.partial_fallback,depth+1)
    elif isinstance(tp,CallableType) and tp.is_type_obj(): yield tp.type_object()
    elif isinstance(tp,Overloaded):
        for i in tp.items: yield from classes(i,depth+1)
    elif isinstance(tp,LiteralType): yield tp.fallback.type

import ast,pathlib

SKIP={"node","info","fullname","type","unanalyzed_type","mro","names","is_ref","original_def","analyzed","expanded","def_var","type_var","alias_tvars","type_args","metaclass_type","declared_metaclass","tuple_type","typeddict_type","bases","imports","plugin_deps","path","line","column","end_line","end_column","definition","related_funcs","defn"}
_attrs={}
def attrs(tp):
    if tp not in _attrs:
        found=[]
        for k in tp.__mro__:
            for n,d in vars(k).items():
                if type(d).__name__ in("getset_descriptor","member_descriptor") and n not in SKIP and not n.startswith("__"): found.append(n)
        _attrs[tp]=list(dict.fromkeys(found))
    return _attrs[tp]
def all_members(root):
    seen=set(); stack=[root]
    while stack:
        n=stack.pop()
        if isinstance(n,(list,tuple)): stack.extend(n); continue
        if isinstance(n,dict): stack.extend(n.values()); continue
        if not isinstance(n,(Node,)) and type(n).__name__ not in("TypeParam",): continue
        if isinstance(n,TypeInfo): continue
        if id(n) in seen: continue
        seen.add(id(n))
        if isinstance(n,MemberExpr): yield n
        for a in attrs(type(n)):
            try: v=getattr(n,a)
            except Exception: continue
            if isinstance(v,(list,tuple,dict,Node)): stack.append(v)
hits=[]; unknown=[]; defs=[]; kws=[]
infos={}
def collect(names_,path):
    for sym in names_.values():
        n=sym.node
        if isinstance(n,TypeInfo) and n.fullname not in infos:
            infos[n.fullname]=n; collect(n.names,path)
for mod,st in res.graph.items():
    if st.tree is not None: collect(st.tree.names,mod)
short={}
def mro_of(tp):
    return tuple(dict.fromkeys(c.fullname for k in classes(tp) for c in k.mro))
for mod,st in res.graph.items():
    if st.tree is None or not st.path: continue
    p=st.path.replace("/work/main/","")
    if not p.endswith(".py") or p.split("/")[0] not in("src","tests","bench","tools","examples"): continue
    line_cls={}
    for e in all_members(st.tree):
        if isinstance(e,MemberExpr) and e.name in names:
            tp=types.get(e.expr); cs=mro_of(tp) if tp is not None else ()
            if isinstance(e.expr,RefExpr) and isinstance(e.expr.node,TypeInfo): cs=cs+tuple(c.fullname for c in e.expr.node.mro)
            kind=type(get_proper_type(tp)).__name__ if tp is not None else None
            isfun=isinstance(e.expr,RefExpr) and isinstance(e.expr.node,MypyFile)
            if isfun: continue
            (hits if cs else unknown).append((e.name,p,e.end_line,e.end_column-len(e.name),cs,kind))
    src=pathlib.Path("/work/main",p).read_text(); lines=src.splitlines()
    t_=ast.parse(src)
    def col(line,name,frm=0):
        import re
        m=re.compile(r"\b"+name+r"\b").search(lines[line-1],frm); return m.start() if m else None
    def walk(node,qual,clsinfo,infunc):
        for c in ast.iter_child_nodes(node):
            if isinstance(c,ast.ClassDef):
                info=infos.get(f"{mod}.{qual}{c.name}") if not infunc else None
                if info is None and infunc:
                    # a local class: its bases by name
                    m=[]
                    for b in c.bases:
                        nm=b.id if isinstance(b,ast.Name) else b.attr if isinstance(b,ast.Attribute) else None
                        sym=st.tree.names.get(nm) if nm else None
                        if sym and isinstance(sym.node,TypeInfo): m+=[x.fullname for x in sym.node.mro]
                        elif isinstance(b,ast.Attribute): m+=[f for f in infos if f.endswith("."+b.attr)][:1]
                    mro=tuple(m)
                else: mro=tuple(x.fullname for x in info.mro) if info else ()
                for b in c.body:
                    if isinstance(b,(ast.FunctionDef,ast.AsyncFunctionDef)) and b.name in names:
                        defs.append((b.name,p,b.lineno,col(b.lineno,b.name,b.col_offset+4),mro,"def"))
                    elif isinstance(b,ast.AnnAssign) and isinstance(b.target,ast.Name) and b.target.id in names: defs.append((b.target.id,p,b.lineno,b.target.col_offset,mro,"field"))
                    elif isinstance(b,ast.Assign):
                        for tg in b.targets:
                            for x in ast.walk(tg):
                                if isinstance(x,ast.Name) and x.id in names: defs.append((x.id,p,x.lineno,x.col_offset,mro,"field"))
                    elif isinstance(b,ast.Assign): pass
                walk(c,f"{qual}{c.name}.",mro,infunc)
            else:
                if isinstance(c,ast.Call):
                    f=c.func
                    if isinstance(f,ast.Attribute) and isinstance(f.value,ast.Call) and isinstance(f.value.func,ast.Name) and f.value.func.id=="super" and f.attr in names:
                        hits.append((f.attr,p,f.end_lineno,f.end_col_offset-len(f.attr),clsinfo or (),"super"))
                    for k in c.keywords:
                        if k.arg in names: kws.append((k.arg,p,k.lineno,k.col_offset,ast.unparse(f),ast.unparse(c.args[0]) if c.args else ""))
                walk(c,qual,clsinfo,infunc or isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef)))
    walk(t_,"",None,False)
hits=list(dict.fromkeys(hits)); unknown=list(dict.fromkeys(unknown))
pickle.dump((hits,unknown,defs,kws),open("/tmp/c/typed.pkl","wb"))
print(len(hits),len(unknown),len(defs),len(kws))
