import ast,sys
src=open('/work/bin/merge_graph.py').read().split('T = lambda')[0]
sys.argv=['x']; exec(src)
std=set(sys.stdlib_module_names)
for m in sorted(mods):
    if m.split('.')[1:2] and m.split('.')[1] in('engine','app','cli','frameworks','testing','engine_client','host','complaining','extras','supervisor'):
        s=set()
        for n in top(ast.parse(mods[m].read_text()).body):
            if isinstance(n,ast.ImportFrom) and n.module: s.add(n.module.split('.')[0])
            elif isinstance(n,ast.Import): s|={a.name.split('.')[0] for a in n.names}
        s-=std; s-={'detent','msgspec','__future__','typing_extensions'}
        if s: print(m,s)
