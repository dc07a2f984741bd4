import ast,pathlib,sys
sys.argv=['x']
src=open('/work/bin/merge_graph.py').read().split('T = lambda')[0]
exec(src)
for m in sorted(mods):
    if m.split('.')[1:2] and m.split('.')[1] in('engine','app','cli','frameworks','testing','engine_client','host','complaining','extras','supervisor'):
        d=sorted(x.replace('detent.','') for x in imports(m))
        print(m.replace('detent.',''),'<-',' '.join(d))
