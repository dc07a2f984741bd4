"""Django: an app on one of its databases, whose jobs are enqueued in Django's transactions.

    app = Detent(lambda: url_of("default"))
    mail.using(conn=django.db.connection).enqueue(order.pk)

Inside `transaction.atomic()` the job appears when the outermost block commits, and is gone with
what a rollback takes, as if it were a row of yours: there is no need for `on_commit`.

The address is asked for late: tests of Django put other databases in the place of those that the
settings name, and an app that was made before would go on with the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from detent.errors import BadUrl

__all__ = ["url_of"]

_TOLD: Final = (
    "service",
    "passfile",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "sslpassword",
    "sslcrl",
    "ssl_min_protocol_version",
    "ssl_max_protocol_version",
    "target_session_attrs",
)
"""Of the options that Django hands on to its driver, those that ours goes by too."""


def url_of(alias: str = "default") -> str:
    """The address of the store in that database of Django's settings.

    What the settings do not say (a password, certificates) is looked up as the server's own tools
    do it.
    """
    connection = import_module("django.db").connections[alias]
    facts = connection.settings_dict
    # Not by the name of the engine: others wrap Django's own, and call theirs what they like.
    if connection.vendor == "sqlite":
        return _file(alias, facts)
    if connection.vendor == "postgresql":
        return _server(facts)
    why = f"There is no store for {facts['ENGINE']}; databases are SQLite or PostgreSQL"
    raise BadUrl(f"DATABASES[{alias!r}]: {why}", alias=alias, engine=facts["ENGINE"])


def _file(alias: str, facts: Mapping[str, Any]) -> str:
    name = str(facts["NAME"])
    if ":memory:" in name or "mode=memory" in name:
        why = "nobody else sees a database in memory; give it a file, or use a Rig in tests"
        raise BadUrl(f"DATABASES[{alias!r}]: {why}", alias=alias, name=name)
    return f"sqlite://{Path(name).absolute()}"


def _server(facts: Mapping[str, Any]) -> str:
    user, password = (quote(str(facts.get(one) or ""), safe="") for one in ("USER", "PASSWORD"))
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    host, port = str(facts.get("HOST") or ""), str(facts.get("PORT") or "")
    options = facts.get("OPTIONS", {})
    told = {name: str(options[name]) for name in _TOLD if options.get(name)}
    if host.startswith("/"):
        # A folder with a socket in it cannot stand where a host does.
        told |= {"host": host} | ({"port": port} if port else {})
        host = port = ""
    elif ":" in host:
        host = f"[{host}]"
    where = f"{host}:{port}" if port else host
    asked = f"?{urlencode(told)}" if told else ""
    return f"postgresql://{who}{where}/{quote(str(facts['NAME']), safe='')}{asked}"
