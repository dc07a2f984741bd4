E='detent.engine.'; A='detent.app.'; C='detent.cli.'
S={}
def t(name,*frm): S[name]=[f if f.startswith('detent') else name.rsplit('.',1)[0]+'.'+f for f in frm]
def e(name,*frm): S[E+name]=[E+f for f in frm]
def a(name,*frm): S[A+name]=[A+f for f in frm]
def c(name,*frm): S[C+name]=[C+f for f in frm]
S['detent.engine']=['detent.engine']
e('ids','identity'); e('store_reads','caching','paging','naming')
e('job_template','trace','asks','lasting'); e('limits','limits'); e('group_commit','gathering','piecemeal','coalesce')
e('secrets','keyring','secrets'); e('commands','followers','ends','commands'); e('job_types','declared')
e('claims','returning','keyless','dropping'); e('worker_reports','reports')
e('enqueue','fates','moulds','entering','enqueueing'); e('caller_tx','joining','completing')
e('rerun','rerunning','aliases'); e('cron','cron','timetable'); e('schedules','schedule','firing','schedules')
e('workflow_spec','shaping','keeping'); e('workflows','progress','building','workflows')
e('retention','sealing','forgetting','erasing')
e('workers','processes','directives','silence','workers')
e('maintenance','marking','setback','losing','upkeep')
e('operator_actions','verbs','switches','operators','bulk')
e('blockers','hurdles'); e('queries','story','ending','queries')
e('feed','subscribers','tail'); e('engine_sessions','engines'); e('access','access'); e('tracing','otel_spans'); e('engine','engine')
e('ssrf_guard','addresses','posting'); e('webhooks','webhook','delivering','webhooks')
S[E+'verify']=[E+'verify']
e('verify.records','verify.finding','verify.records','verify.flows','verify.workers')
e('verify.feed','verify.sums','verify.feed','verify.seals')
e('verify.counts','verify.lanes','verify.counts','verify.tallies'); e('verify.verification','verify.verification')
e('doctor','doctor','doctor.surroundings','doctor.sight','doctor.keys','doctor.fleet','doctor.steering','doctor.starting','doctor.examination')
S['detent.text']=['detent.engine.telling']; S['detent.log_throttle']=['detent.complaining']; S['detent.host']=['detent.host'];S['detent.extras']=['detent.extras'];S['detent.supervisor']=['detent.supervisor']
S['detent.app']=['detent.app']
a('options','tracing','checking','policies','options'); a('job','elsewhere','asking','job')
a('handle','waiting','operating','reference','handle'); a('selection','selecting'); a('workflow','shapes','workflow')
a('schedules','schedules'); a('listeners','listening'); a('connection','connection'); a('caller_tx','inside'); a('detent','fast_path','detent')
a('loader','loading'); a('worker','working'); a('server','actions','serving'); a('pool','pool')
S[A+'fleet']=[A+'fleet']
a('fleet.config','fleet.orders'); a('fleet.store_watch','fleet.awaiting','fleet.guarding'); a('fleet.worker_process','fleet.proof','fleet.child')
a('fleet.worker_registry','fleet.members'); a('fleet.fleet','fleet.serving','fleet.shipping','fleet.commands','fleet.fleet')
a('fleet.remote_fleet','fleet.graves','fleet.distant'); a('fleet.remote_worker','fleet.distant_worker'); a('fleet.metrics','fleet.numbers'); a('fleet.reloader','fleet.reloading')
S['detent.cli']=['detent.cli']
c('application','application'); c('output','tables','output'); c('command','bundles','durations','places','showing')
c('jobs','jobdata','jobs','steering','replay'); c('events','events'); c('queues','queues'); c('schedules','schedules'); c('workflows','drawing','workflow'); c('keys','keys')
c('workers','workerrows','workerpictures','workerlogs','workers'); c('run','importing','caring','fleetview','running'); c('serve','serve')
c('demo','demo'); c('demo_jobs','demo_jobs'); c('admin','migrate','verify','prune','config','doctor'); c('lifecycle','lifecycle')
S['detent.frameworks']=['detent.frameworks']
for m in('asgi','django','django_tasks'): S['detent.frameworks.'+m]=['detent.frameworks.'+m]
S['detent.testing']=['detent.testing'];S['detent.testing.plugin']=['detent.testing.plugin'];S['detent.testing.rig']=['detent.testing.clock','detent.testing.rig']
S['detent.engine_client']=['detent.engine_client'];S['detent.engine_client.client']=['detent.engine_client.jobs','detent.engine_client.client']
if __name__=='__main__':
    import json; json.dump({k:{'from':v,'doc':None} for k,v in S.items()},open('/tmp/w/draft.json','w'),indent=1)
