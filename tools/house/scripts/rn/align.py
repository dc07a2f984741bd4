REFS="/tmp/refs/out.json"
exec(open('/tmp/rn/finish.py').read())
eng={}
for x in json.load(open('/work/tables/engine.rename.json'))+json.load(open('/work/tables/stores.rename.json')):
    o=x.get('old') or x.get('collision')
    if not o: continue
    m,n=o.split(':')
    if '.' in n: eng[f"{m}.{n.split('.')[0]}",n.split('.')[1]]=(x['new'],x.get('where'))
mine=lambda fn: fn.startswith(('detent.runtime.','detent.surfaces.'))
print('---- align')
for (fn,a),(new,where) in sorted(eng.items()):
    if fn not in classes: continue
    rel=set()
    for x in closure(fn,subs)|closure(fn,sup):
        if a in classes[x]['own']: rel.add(x)
    for p in isproto:
        if a in classes[p]['own'] and (fn==p or fn in impl[p]):
            rel|={i for i in impl[p] if a in classes[i]['own']}|{p}
    for x in rel:
        if mine(x) and (x,a) not in eng:
            print(fn,a,'->',new,'| mine',x,want.get((x,a)))
