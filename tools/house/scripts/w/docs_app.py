A='detent.app.'; C='detent.cli.'
D={};N={}
D['detent.app']='''The app: declare jobs, enqueue them, and ask about them.

`Detent` (in `detent`) is the object on which a program declares its jobs. `@app.job` makes a `Job`
(in `job`); `job.enqueue(...)` validates the arguments, encodes them and hands a template to the
engine; the answer is a handle (in `handle`). `workflow` starts several jobs as one, `schedules`
fires jobs by the clock, `selection` acts on many jobs, `worker` runs jobs inside the program.
`connection` opens the store in the event loop of a bridge thread when it is first needed. `fleet`
is what `detent up` and `detent worker` run; `server` puts the HTTP surfaces together. Start reading
at `detent`, then `job`.'''
D[A+'options']='''The options of jobs: checked where they are given, so that no job is stored that cannot run.

Options of one call override those of its job, which override the app's. People give durations in
seconds or as a timedelta, and moments as datetimes with a zone; here they become the values that
the engine uses. `Backoff`, `Limit` and `Unique` are options with fields of their own. The trace of a
call is the one that is given, else that of OpenTelemetry if the program uses it.'''
D[A+'job']='''`Job`: a function that can be enqueued, and `Call`, the function with its arguments.

A job is called like the function it decorates and enqueued with the same arguments. A call encodes
the arguments once and turns itself, with its options, into the engine's `JobTemplate`. Methods that
other job systems have (`delay`, `send`, `apply_async`, ...) are answered with an error that names
ours.'''
D[A+'handle']='''`Handle`: one job that was enqueued: its result, state, history and log, and actions on it.

A handle is an id; everything else is read from the store when it is asked for. `why()` explains why
the job is where it is.'''
D[A+'selection']='''`Selection`: the jobs that match a filter, to iterate over, count, and act on in bulk.'''
D[A+'workflow']='''Workflows: several jobs as one, in the usual shapes, and the handle of one that was started.

    chain(fetch.bind(url), [small.bind(), large.bind()], publish.bind())
    group(*(resize.bind(n) for n in range(10_000)))
    batch([one.bind(), two.bind()], on_failure=alert.bind())
    stages({"build": build.bind(), "deploy": [ship.bind(1), ship.bind(2)]}, gate=["deploy"])
    dag({"a": x.bind(), "b": y.bind(), "c": z.bind()}, after={"c": ["a", "b"]})

A shape only plans, and refuses what cannot work; `app.start` creates the workflow. A list is a step
of jobs that run at once, which is what makes ten thousand of them cheap.'''
D[A+'schedules']='''Schedules: declared beside the jobs that they fire, and stored when maintenance starts.'''
D[A+'listeners']='''Listeners: functions of the program that are called with events, registered with `app.on`.'''
D[A+'connection']='''The connection of an app to its store: opened when first needed, in the loop of its bridge.'''
D[A+'detent']='''`Detent`: the object on which a program declares its jobs.

Enqueueing has three ways. A plain call is created from a prepared template in the caller's own
thread and handed to the store from there, if the store serves all threads, else through the bridge.
A call with keys, secrets or limits goes through the engine. With `conn`, jobs are written in the
caller's transaction (`caller_tx`).'''
D[A+'caller_tx']='''Enqueue calls in the caller's own transaction, in the caller's thread or loop.

The store is asked nothing and nothing crosses the bridge: a caller that holds a transaction open
must not wait for somebody who may be waiting for it.'''
N[A+'caller_tx']='loaded lazily by app.detent (a program that only enqueues must not load it): not merged with detent.py'
D[A+'loader']='''Find the app in a program: `app.py`, `pkg/app.py:name`, `module` or `module:name`.'''
D[A+'worker']='''A worker inside the user's program: it runs jobs while the program does other things.

Handlers run in the loop of the program, and heartbeats come from the bridge thread. A handler that
keeps Python from switching threads for 15 seconds silences the heartbeats too, and its jobs are
given to others: long computations belong into `detent worker` or into a process.'''
D[A+'server']='''The HTTP server: all surfaces on one store, put together. The only module that names them.

With an app, the server also knows which actions may be started and which job types engines may
submit, as the program declares them.'''
D[A+'pool']='''A pool process: `python -m detent.app.pool REFERENCE CHANNEL DUMP LIFELINE`, for workers only.

It watches its lifeline first, so that it never outlives its worker. Then it imports the user's
program, once; what that prints goes where the worker's output goes.'''
N[A+'pool']='started with -m by runtime/executors/pooled.py ("detent.app.pool"): name and file must stay'
D[A+'fleet']='''A fleet: one supervisor process and its worker processes, as `detent up` runs it.

`fleet` builds the supervised tree (workers, maintenance, server) from a `FleetConfig`.
`worker_registry` starts worker processes, makes them known to the store and marks them dead;
`worker_process` is what runs in each. `remote_fleet` and `remote_worker` do the same against a server instead of a database.
Start reading at `fleet`.'''
D[A+'fleet.config']='''The configuration of a fleet, and of each of its worker processes.'''
D[A+'fleet.store_watch']='''Wait for the store when a fleet starts, and watch its file while the fleet runs.

A machine boots in any order: a store that is not reachable yet is waited for and logged each time;
a signal ends the wait. What does not heal by itself (a wrong password, no such database, missing
tables) is an error at once.

A process that has a file open can go on writing to it after it was deleted, and nobody else ever
sees that. A fleet whose store file was deleted or replaced ends with an error instead.'''
D[A+'fleet.worker_process']='''A worker process: `python -m detent.app.fleet.worker_process`, started by a fleet only.

It joins its channel to the supervisor first, so that it dies with the supervisor and its stacks can
be dumped; then it imports the program. It claims nothing before the supervisor says that the store
knows it. Messages of the supervisor are handled in the loop of the bridge, so that a handler that
blocks its own loop cannot keep the worker from being stopped; only a ping is answered from the
handlers' loop.

A lease watchdog ends the process when its lease was not renewed in time, because its jobs may have
been given to others. The supervisor renews the lease and stops the worker when that fails; a
supervisor that hangs does neither, so the worker watches the clock itself, in a thread.'''
N[A+'fleet.worker_process']='started with -m: worker_registry (today app/fleet/members.py:128) has the string "detent.app.fleet.child" in the command; also tests and docs may name it (grep detent.app.fleet.child)'
D[A+'fleet.worker_registry']='''The worker processes of a fleet: started, made known to the store, and marked dead at their end.'''
D[A+'fleet.fleet']='''`Fleet`: one supervised tree of worker processes, maintenance and the HTTP server.

The supervisor runs no handlers. It keeps all its workers alive in the store with one heartbeat, so a
handler that holds the interpreter of its own process silences nobody.

The supervisor's journal is uploaded to the store as it grows. The journal is the truth and goes on
while the store is unreachable; a cursor in the journal remembers what was sent, and events that are
sent twice are stored once. `ControlLoop` carries out the control messages that operators send
through the store.'''
D[A+'fleet.remote_fleet']='''A fleet whose jobs are kept by a server: the same worker processes, without a database.

Each worker holds its jobs itself, by heartbeats from its bridge thread, and stops them when these
do not arrive. The supervisor only reports deaths to the server, and repeats that while the server is
unreachable. What an operator asks of a worker comes with the answers to its heartbeats; maintenance
and schedules are the server's.'''
N[A+'fleet.remote_fleet']='imports runtime.remote.client (httptools, extra [remote]) at the top: loaded lazily by cli.run; must not be merged with fleet.fleet or worker_registry'
D[A+'fleet.remote_worker']='''The connection of one remote worker to its server: its requests and its heartbeats.'''
N[A+'fleet.remote_worker']='imports runtime.remote.client (httptools) at the top: loaded lazily by worker_process, so it stays a module of its own; remote_fleet would load the whole supervisor into the worker'
D[A+'fleet.metrics']='''Prometheus metrics of a fleet's supervisor, served at an address of their own.

The supervisor serves them itself and not through the store, so they are there while the database is
down. The counters of prometheus-client are not used: where `PROMETHEUS_MULTIPROC_DIR` is set for
the user's program, they would write into its files.'''
N[A+'fleet.metrics']='imports prometheus_client (extra [server]) at the top: loaded lazily, not merged'
D[A+'fleet.reloader']='''Restart workers when a file of the program changes, for development.'''
D['detent.cli']='''The command line: `detent up`, `detent jobs list` and all other commands.

`application` knows which module has which command and loads only that one. `command` has what all
commands share: options, `run_command`, which opens the store and turns errors into exit codes, and
`print_answer`. `output` writes text and tables to a terminal, a pipe or a file.

Exit codes are a contract: 0 done; 1 it could not be done, or the answer is no; 2 the question could
not be asked: the command line was wrong, or the store it names cannot be used.'''
D[C+'application']='''The Typer application: every command, and the module that each is loaded from.'''
N[C+'application']='_COMMANDS and _GROUPS have module names as strings: running -> run, migrate/verify/prune/doctor -> admin, replay -> jobs, config:CONFIG -> admin:CONFIG, steering:ACTING -> jobs:ACTING, workflow:WORKFLOWS -> workflows:WORKFLOWS'
D[C+'output']='''Write text to a terminal, a pipe or a file, and fit tables to their width.

A table that is too wide for the terminal loses its frame, then becomes a list; no word is broken. A
pipe gets one row per line.'''
D[C+'command']='''What every command shares: its options, how it runs on a store, and how it answers.

A class of options (`OptionGroup`) is one parameter of a command; Typer reads options from a
signature, so `expand_option_groups` replaces that parameter by the fields of the class.
`StoreOptions` says which store and tenant, `ActorOptions` who acts and why. `run_command` opens the
store, runs a coroutine on its engine, and ends the command with 1 or 2 and one line when that
fails. `print_answer` writes tables for people and the same as JSON for programs.'''
D[C+'jobs']='''`detent jobs ...` and `detent replay`: look at jobs, act on one or many, show one as it was.

The names and forms of `--json` are a contract. A replay rebuilds a job at any moment from its
history alone.'''
D[C+'events']='''`detent events`: print the feed, as it happens or with the pauses it happened with.'''
D[C+'queues']='''`detent queues list|pause|resume|limit`: counts of each queue, pauses and limits.'''
D[C+'schedules']='''`detent schedules list|add|pause|resume|fire|remove`: jobs that are enqueued by the clock.'''
D[C+'workflows']='''`detent workflow list|show|tree|pause|resume|abort|approve|wait`: query and control workflows.'''
D[C+'keys']='''`detent keys create|list|revoke`: API keys for the server.'''
D[C+'workers']='''`detent workers ...`: list and draw worker instances, control them, read their logs and stacks.'''
D[C+'run']='''`detent up` and `detent worker`: run a fleet until a signal ends it, with a live table if wanted.'''
D[C+'serve']='''`detent serve`: the HTTP surfaces of a store, for programs in any language.'''
D[C+'demo']='''`detent demo`: real jobs, a real supervisor, a temporary store, and a worker that is killed.'''
D[C+'demo_jobs']='''The jobs of `detent demo`: one succeeds, one fails at first, one must be cancelled, one resumes.'''
N[C+'demo_jobs']='imported by worker processes through the reference "detent.cli.demo_jobs:app" in cli/demo.py: stays a small module of its own'
D[C+'admin']='''Commands on a whole store: `detent migrate`, `verify`, `prune`, `doctor` and `config show`.'''
D[C+'lifecycle']='''`detent lifecycle`: show the states and transitions of a job, workflow, step or worker.'''
D['detent.frameworks']='''Integrations with web frameworks. Nothing here imports a framework that is not in use already.'''
D['detent.frameworks.asgi']='''FastAPI, Starlette and other ASGI frameworks: open and close the app with the server.

FastAPI(lifespan=lifespan(app))'''
D['detent.frameworks.django']='''Django: an app on one of Django's databases, whose jobs are enqueued in Django's transactions.

    app = Detent(lambda: url_of("default"))
    mail.using(conn=django.db.connection).enqueue(order.pk)

Inside `transaction.atomic()` the job appears when the outermost block commits, and disappears with a
rollback, like a row of yours: there is no need for `on_commit`.

The URL is computed late: Django's tests replace the databases that the settings name, and an app
that had read them earlier would use the real ones.'''
D['detent.frameworks.django_tasks']='''A backend for Django's tasks (`django.tasks`, or the package `django-tasks` before Django 6).

    TASKS = {"default": {"BACKEND": "detent.frameworks.django_tasks.DetentBackend"}}

A task is enqueued in the transaction of Django's own database, so it appears with the commit of the
outermost `atomic` block and disappears with a rollback. Its job type is the path of its function.
`app_of` is the `Detent` that runs them.

Options of the backend: `database`, the alias whose database is the store ("default" unless given);
`app`, the path of a `Detent` of yours, whose store must be that database, or `None` for `database`
if it is elsewhere; `retry`, how often a failed task is tried again (never unless given).'''
for m in('asgi','django','django_tasks'): N['detent.frameworks.'+m]='public path, named in settings and docs: stays'
D['detent.testing']='''Tools for testing jobs: an app in memory, a virtual clock, and workers that crash on purpose.

def test_the_invoice_is_sent(rig: Rig) -> None:
    order.enqueue(7)
    rig.drain()
    rig.assert_enqueued(send_invoice.bind(7))

The names are loaded when they are first used: pytest imports this package in every project that has
Detent installed, whether its tests are about jobs or not.'''
N['detent.testing']='__getattr__ has home = "clock" if name == "VirtualClock" else "rig": becomes "rig" for all'
D['detent.testing.plugin']='''The pytest plugin: a fixture `rig`, on the app that the project's configuration names.

[tool.pytest.ini_options]
detent_app = "shop.jobs:app"'''
N['detent.testing.plugin']='entry point pytest11 in pyproject.toml: must stay, and stay light'
D['detent.testing.rig']='''`Rig`: an app on a store in memory, with a virtual clock, that works when the test says so.'''
D['detent.engine_client']='''A client for engines: programs that jobs are pushed to, over Socket.IO.

    engine = EngineClient("http://127.0.0.1:8080", "renderer-1", capacity=4)

    @engine.handles("BUILD_SCENE")
    async def build(job: PushedJob) -> object:
        await job.progress(50, "half of it")
        return {"triangles": 12}

    asyncio.run(engine.run())

After a lost connection the client reconnects and goes on with the jobs it holds, under the same boot
id and the same leases; reports that were not answered are sent again. Install `detent[engine]`.'''
N['detent.engine_client']='__init__ imports EngineClient inside needs_extra(...), JobFault and PushedJob outside: after the merge all three come from .client, so they belong inside the block'
D['detent.engine_client.client']='''`EngineClient`: its connections one after the other, and the jobs it holds meanwhile.'''
N[A+'detent']='detent/__init__.py (_HOMES and the TYPE_CHECKING imports) names modules as strings: app.asking -> app.job, app.operating -> app.handle, app.selecting -> app.selection, app.shapes -> app.workflow, engine.bulk -> engine.operator_actions, engine.trace -> engine.job_template. Any other lazy tables: testing/__init__, cli/application'
N[A+'worker']='loaded lazily by app.detent: stays apart from detent.py'
N[C+'output']='cli.output:counted and engine.telling:counted are the same function: one can go'
N[C+'run']='imports of fleet.metrics and fleet.remote_fleet inside functions stay there'
N[A+'fleet.fleet']='the import of fleet.metrics inside _new_numbers stays lazy (prometheus_client)'
