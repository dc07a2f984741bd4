VARS=[ # word, regex of type, new
('ask',r'^detent\.engine\.asks\.Ask( \| None)?$','template'),
('asks',r'(list|Sequence|Iterable|tuple)\[detent\.engine\.asks\.Ask','templates'),
('coalescer',r'detent\.engine\.coalesce\.Coalescer$','group_commit'),
('identity',r'detent\.engine\.identity\.Identity$','ids'),
('fates',r'engine\.fates\.Fates$','batch'),
('hurdle',r'engine\.hurdles\.Hurdle$','blocker'),
('entry',r'engine\.entering\.Entry( \| None)?$','admission'),
('order',r'engine\.shaping\.Order$','spec'),
('part',r'engine\.shaping\.Filled\[','step'),
('parts',r'engine\.shaping\.Filled\[','steps'),
('kept',r'engine\.keeping\.Kept$','record'),
('owner',r'engine\.secrets\.Owner$','scope'),
('wish',r'engine\.directives\.Directive$','message'),
('wish',r'cli\.steering\.Wish$','request'),
('orders',r'fleet\.orders\.Orders$','config'),
('mark',r'engine\.marking\.Mark$','heartbeat'),
('beside',r'engine\.commands\.Beside$','output'),
('beside',r'engine\.workflows\._With$','extras'),
('change',r'engine\.commands\.Change( \| None)?$','command'),
('changes',r'(list|Sequence)\[detent\.engine\.commands\.Change\]','commands'),
('verb',r'(lifecycle\.job|engine\.verbs\.)','action'),
('verb',r'engine\.directives\.Verb','action'),
('effects',r'engine\.bulk\.Effects$','result'),
('story',r'engine\.story\.Story$','timeline'),
('door',r'engine\.hurdles\.Door$','pause'),
('doors',r'engine\.hurdles\.Door','pauses'),
('facts',r'engine\.hurdles\.Facts$','inputs'),
('sight',r'doctor\.sight\.Sight$','snapshot'),
('patient',r'doctor\.examination\.Patient$','target'),
('pulse',r'app\.working\.Pulse$','heartbeat'),
('member',r'fleet\.members\.Member$','worker'),
('members',r'fleet\.members\.Members$','registry'),
('crew',r'cli\.running\.Crew$','worker_options'),
('care',r'cli\.caring\.Care$','supervision'),
('life',r'cli\.running\.Life$','recycling'),
('life',r'(verify\.records\.Life|fallback=detent\.engine\.verify\.records\.Life)','history'),
('far',r'cli\.running\.Far$','remote'),
('site',r'cli\.running\.Site$','http'),
('eyes',r'cli\.running\.Eyes$','reloading'),
('place',r'cli\.places\.Place$','options'),
('author',r'cli\.places\.Author$','actor'),
('choice',r'cli\.jobs\.Choice$','job_filter'),
('sure',r'cli\.steering\.Sure$','confirm'),
('wanted',r'cli\.schedules\.Wanted$','new_schedule'),
('declared',r'engine\.declared\.Declared( \| None)?$','job_types'),
('enqueueing',r'engine\.enqueueing\.Enqueueing$','enqueuer'),
('seated',r'engine\.engines\.Seated$','session'),
('coming',r'engine\.engines\.Seated$','session'),
('poster',r'engine\.posting\.Poster( \| None)?$','http_sender'),
('holding',r'engine\.ending\.Holding','holder'),
('listed',r'engine\.workers\.Listed$','listing'),
('member',r'engine\.asks\.Ask$','template'),
]
vout=[];skipped=[]
src_names=defaultdict(list)
for p,l,c,w,t in refs['names']: src_names[norm(p)].append((l,c,w,t.replace('ARG ','')))
params=[r for r in refs['rows'] if r[3] in('param','kw')]
pidx=defaultdict(list)
for r in params: pidx[r[4]].append(r)
agg=defaultdict(list)
for path,rows in src_names.items():
    if not path.startswith(('src/','tests/','bench/','tools/','examples/')): continue
    tree=ast.parse('\n'.join(lines[path])+'\n')
    funcs=[]
    def top(n,cls=None):
        for c in ast.iter_child_nodes(n):
            if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef)): funcs.append((c,cls))
            elif isinstance(c,ast.ClassDef): top(c,c.name)
            else: top(c,cls)
    top(tree)
    for f,cls in funcs:
        lo,hi=f.lineno,f.end_lineno
        here=[r for r in rows if lo<=r[0]<=hi]
        done=set()
        for w,rx,new in VARS:
            if w in done: continue
            hit=[r for r in here if r[2]==w and re.search(rx,r[3])]
            if not hit: continue
            done.add(w)
            bound={x.id for x in ast.walk(f) if isinstance(x,ast.Name)}|{a.arg for x in ast.walk(f) if isinstance(x,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)) for a in (x.args.args+x.args.kwonlyargs+x.args.posonlyargs+[y for y in (x.args.vararg,x.args.kwarg) if y])}
            defines={x.arg for x in ast.walk(f) if isinstance(x,ast.arg)}|{x.id for x in ast.walk(f) if isinstance(x,ast.Name) and isinstance(x.ctx,ast.Store)}
            if w not in defines: continue # global/closure
            if new in bound: skipped.append(f'{path}:{f.lineno} {f.name}: {w} -> {new}'); continue
            ps=set()
            for x in ast.walk(f):
                if isinstance(x,ast.Name) and x.id==w: ps.add((x.lineno,len(lines[path][x.lineno-1].encode()[:x.col_offset].decode())))
                if isinstance(x,ast.arg) and x.arg==w: ps.add((x.lineno,len(lines[path][x.lineno-1].encode()[:x.col_offset].decode())))
            isparam=w in {a.arg for a in f.args.args+f.args.kwonlyargs+f.args.posonlyargs}
            kwp=set()
            if isparam:
                for r in pidx[w]:
                    own=r[5][0] if r[5] else ''
                    if (r[3]=='param' and own.split('.')[-1]==f.name) or (r[3]=='kw' and f.name=='__init__' and any(o.split('.')[-1]==cls for o in r[5])):
                        q=pos((r[0],r[1],r[2],'kw',w,r[5]),w)
                        if q: kwp.add(q)
            for l,c in ps: agg[w,rx,new].append(f'{path}:{l}:{c}')
            for q in kwp: agg[w,rx,new].append('%s:%d:%d'%q)
for (w,rx,new),ps in agg.items():
    vout.append({'variable':w,'type':rx,'new':new,'at':sorted(set(ps))})
print('variables',len(vout),sum(len(v['at']) for v in vout),'skipped',len(skipped)); print('\n'.join(skipped[:60]))
