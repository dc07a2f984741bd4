import json
import importlib.util,sys
def load(p):
    g={}; exec(open(p).read(),g); return g
S=load('/tmp/w/structure.py')['S']
g1=load('/tmp/w/docs_engine.py');g2=load('/tmp/w/docs_app.py')
D={**g1['D'],**g2['D']};N={**g1['N'],**g2['N']}
import textwrap
def wrap(d):
    if not d: return d
    ps=[]
    for par in d.split('\n\n'):
        if any(len(l)>100 for l in par.split('\n')) and not any(l.startswith((' ','|')) for l in par.split('\n')):
            par='\n'.join(textwrap.wrap(par.replace('\n',' '),100,break_on_hyphens=False,break_long_words=False))
        ps.append(par)
    return '\n\n'.join(ps)
D={k:wrap(d) for k,d in D.items()}
out={}
for k,v in S.items():
    if k not in D: print('NO DOC',k)
    out[k]={'from':v,'doc':D.get(k)}
    if k in N: out[k]['notes']=N[k]
for k in list(D)+list(N):
    if k not in S: print('DOC FOR NOTHING',k)
for k,d in D.items():
    if d:
        for l in d.split('\n'):
            if len(l)>100: print('LONG',k,l)
        if len('"""'+d.split('\n')[0])>100: print('LONG1',k,d.split('\n')[0])
json.dump(out,open('/work/tables/engine.merge.json','w'),indent=1,ensure_ascii=False)
