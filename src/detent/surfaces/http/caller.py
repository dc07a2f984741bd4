"""Who makes a request, and what they may touch.

A `Caller` is made once per request, in `gate.py`, right after the key is known and before any
surface sees the request. It says which tenant the request works in, whom the history names, and
which queues the key is for. Handlers read `call.caller` and nothing else, so no surface can forget
a rule or have one of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import msgspec

from detent.engine.access import Principal, Scope
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.surfaces.http.problems import Problem


class Reach(StrEnum):
    """How far an operation reaches; every route says so, and the gate holds keys to it.

    QUEUE is an operation on jobs and queues: its handler checks each queue (`need_queue`) or leaves
    out those of others (`may_use`). TENANT is about all queues of a tenant and refuses keys bound
    to queues. STORE is about everything and refuses keys bound to tenants too.
    """

    OPEN = "open"
    QUEUE = "queue"
    TENANT = "tenant"
    STORE = "store"


@dataclass
class CallerRules:
    """What a surface adds to its callers.

    The history names `actor` where no key is needed. Callers may name a tenant in `tenant_header`;
    without such a header only their key does. In test mode `tenant_prefix` moves the surface into a
    fresh set of tenants with every reset.
    """

    actor: str = "http"
    tenant_header: str | None = None
    tenant_prefix: str = ""

    def tenant(self, name: str) -> str:
        """The tenant of that name as the store knows it."""
        return f"{self.tenant_prefix}/{name}" if self.tenant_prefix else name


class Caller(msgspec.Struct, frozen=True):
    """The principal of a request and the one tenant that the request works in."""

    principal: Principal
    tenant: str
    surface: str = "http"

    @property
    def id(self) -> str:
        """The id of the key; empty without one."""
        return self.principal.id

    @property
    def queues(self) -> tuple[str, ...]:
        """The patterns of the queues that the key is for."""
        return self.principal.queues

    @property
    def is_bound(self) -> bool:
        """Whether the key is for some queues alone."""
        return self.principal.is_bound

    @property
    def actor(self) -> By:
        """Whom the history names: the key, or the surface where no key is needed."""
        return By(Actor.USER, self.principal.id or self.surface)

    def has(self, scope: Scope) -> bool:
        """Whether the key has this scope."""
        return self.principal.has(scope)

    def may_use(self, queue: str) -> bool:
        """Whether the key is for this queue."""
        return self.principal.may_use(queue)

    def need_scope(self, *scopes: Scope) -> None:
        """Refuse a key that has none of these scopes."""
        if not any(map(self.principal.has, scopes)):
            why = f"this needs the scope {' or '.join(scopes)}"
            raise Problem(403, "forbidden", why, scope=scopes[0].value)

    def need_queue(self, *queues: str) -> None:
        """Refuse a key that is not for all of these queues."""
        for queue in queues:
            if not self.principal.may_use(queue):
                why = f"this key is not for queue {queue}"
                raise Problem(403, "forbidden", why, queue=queue)

    def need_tenant(self, tenant: str) -> None:
        """Refuse a key that is not for this tenant."""
        if not self.principal.may_enter(tenant):
            raise Problem(403, "forbidden", "this key is for other tenants")

    def need_unbound(self) -> None:
        """Refuse a key that is bound to queues: this is about more than one queue."""
        need_reach(self.principal, Reach.TENANT)


# Makes the caller of a key that is sent over a WebSocket, or of the key of its handshake. The
# function it is given ends the connection; it is called when the key opens nothing any more.
Admit: TypeAlias = Callable[[str | None, Callable[[], None]], Awaitable[Caller]]


def need_reach(principal: Principal, reach: Reach) -> None:
    """Refuse a key that is bound more tightly than an operation reaches."""
    if reach is Reach.STORE and not principal.is_boundless:
        why = "this is about all tenants and queues: use a key that is bound to neither"
        raise Problem(403, "forbidden", why, hint="use a key for all tenants and queues")
    if reach is Reach.TENANT and principal.is_bound:
        why = "this is about all queues of a tenant, and this key is for some alone"
        raise Problem(403, "forbidden", why, hint="use a key that is not bound to queues")


def caller_of(principal: Principal, named: str | None, rules: CallerRules) -> Caller:
    """The caller, in the tenant that they name or that their key is for."""
    tenant = principal.tenant if named is None else named
    if tenant is None:
        way = "use a key for one tenant"
        if rules.tenant_header is not None:
            way = f"name one in the header {rules.tenant_header}"
        raise Problem(403, "forbidden", f"this key is for several tenants: {way}", hint=way)
    if not principal.may_enter(tenant):
        raise Problem(403, "forbidden", "this key is for other tenants")
    return Caller(principal, rules.tenant(tenant), rules.actor)
