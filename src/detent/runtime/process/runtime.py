"""The command line of a container runtime: `docker`, `podman`, or whatever speaks like them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from detent.errors import ContainerError
from detent.runtime.process.faults import spawn_fault

T = TypeVar("T")
ANSWER_S: Final = 10.0
_SAID_MAX: Final = 2000
_ID: Final = re.compile(r"[0-9a-f]{12,64}")
_GONE: Final = re.compile(r"no such (container|object)", re.IGNORECASE)
"""Of all that there may be none of: a missing socket or host says nothing about the container."""


class State(msgspec.Struct, frozen=True, rename="pascal"):
    """What `inspect` says of a container, as far as we use it."""

    status: str = ""
    exit_code: int = 0
    pid: int = 0
    oom_killed: bool = msgspec.field(name="OOMKilled", default=False)
    health: dict[str, Any] | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing runs in it any more."""
        return self.status in ("exited", "dead", "stopped")

    @property
    def is_well(self) -> bool:
        """Running, and not found to be ill by a check of its own."""
        return self.status == "running" and self.healthy is not False

    @property
    def healthy(self) -> bool | None:
        """What the image's own check says; nothing if it has none, or has not decided yet."""
        word = (self.health or {}).get("Status")
        return {"healthy": True, "unhealthy": False}.get(str(word))


class _Joined(msgspec.Struct, frozen=True):
    ip_address: str = msgspec.field(name="IPAddress", default="")


class _Bound(msgspec.Struct, frozen=True, rename="pascal"):
    host_port: str = ""


class Network(msgspec.Struct, frozen=True, rename="pascal"):
    """Where a container can be reached: in its networks, and through ports of the host."""

    networks: dict[str, _Joined] | None = None
    ports: dict[str, list[_Bound] | None] | None = None

    @property
    def address(self) -> str:
        """Its address in the first network that gave it one."""
        joined = (self.networks or {}).values()
        return next((one.ip_address for one in joined if one.ip_address), "")

    @property
    def told_ports(self) -> str:
        """Its ports, each behind the port of the host that leads there, if one does."""
        told = []
        for inside, bound in sorted((self.ports or {}).items()):
            outside = {one.host_port for one in bound or () if one.host_port}
            told += [f"{port}:{inside}" for port in sorted(outside)] or [inside]
        return ", ".join(told)


class Runtime:
    """Runs its commands, with a time limit each."""

    def __init__(self, *command: str) -> None:
        self.command = command or ("docker",)

    async def call(
        self, *words: str, env: Mapping[str, str] | None = None, limit_s: float = ANSWER_S
    ) -> str:
        """What a command answers; its failure is a coded error."""
        process = await self._start(words, env)
        try:
            # Not `wait_for`: in Python 3.11 that may swallow the cancel of whoever polls.
            async with asyncio.timeout(limit_s):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise self._failed(words, f"no answer within {limit_s:g} s") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            raise self._failed(words, err.decode("utf-8", "replace").strip())
        return out.decode("utf-8", "replace").strip()

    async def inspect(self, container: str, *, limit_s: float = ANSWER_S) -> State | None:
        """How a container is; nothing if there is no such container."""
        try:
            return await self._told("State", State, container, limit_s)
        except ContainerError as error:
            if _GONE.search(str(error.fields["said"])):
                return None
            raise

    async def network(self, container: str) -> Network:
        """Where a container can be reached."""
        return await self._told("NetworkSettings", Network, container, ANSWER_S)

    async def _told(self, part: str, shape: type[T], container: str, limit_s: float) -> T:
        ask = ("inspect", "--format", f"{{{{json .{part}}}}}", container)
        said = await self.call(*ask, limit_s=limit_s)
        try:
            return msgspec.json.decode(said, type=shape)
        except msgspec.MsgspecError as error:
            raise self._failed(ask, str(error)) from error

    async def _start(self, words: tuple[str, ...], env: Mapping[str, str] | None) -> Process:
        command = (*self.command, *words)
        try:
            return await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**os.environ, **(env or {})}
            )
        except OSError as error:
            raise spawn_fault(error.errno, str(error), command) from error

    async def run(self, *words: str, env: Mapping[str, str], limit_s: float) -> str:
        """Start a container; its id."""
        said = await self.call("run", "--detach", *words, env=env, limit_s=limit_s)
        if not _ID.fullmatch(said):
            raise self._failed(("run",), f"it answered {said!r}, which is no id of a container")
        return said

    def _failed(self, words: tuple[str, ...], said: str) -> ContainerError:
        said = said[:_SAID_MAX]
        return ContainerError(
            f"`{self.command[0]} {words[0]}` failed: {said}; is the runtime up, and may we use it?",
            command=words[0],
            said=said,
        )
