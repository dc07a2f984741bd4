"""A program that behaves like the command line of a container runtime, as far as we use one.

Containers are real processes here, and what is known of them is kept in the folder that
`FAKE_RUNTIME` names. Each container is watched by a process of this same file (`shim`), because
the one that was called has long ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

HOME = Path(os.environ["FAKE_RUNTIME"])
NETWORK = {
    "Networks": {"none": {"IPAddress": ""}, "bridge": {"IPAddress": "172.17.0.2"}},
    "Ports": {
        "80/tcp": [
            {"HostIp": "192.0.2.1", "HostPort": "8080"},
            {"HostIp": "::", "HostPort": "8080"},
        ],
        "9/udp": None,
    },
}
VALUED = ("--env", "--label", "--name", "--time", "--filter", "--format")


def main(verb: str, words: list[str]) -> None:
    """One command."""
    if (HOME / "broken").exists():
        sys.exit((HOME / "broken").read_text())
    VERBS[verb](*_parsed(words))


def _parsed(words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """The options that come first, and what follows them."""
    options: list[tuple[str, str]] = []
    rest = list(words)
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        options.append((name, rest.pop(0) if name in VALUED else ""))
    return options, rest


def run(options: list[tuple[str, str]], rest: list[str]) -> None:
    """Start a container: `rest` is the image, which is ignored, and the command."""
    if rest[0] == "none":
        sys.exit("Unable to find image 'none:latest'")
    name = uuid4().hex
    env = {word: os.environ[word] for option, word in options if option == "--env"}
    labels = [word for option, word in options if option == "--label"]
    _write(name, Status="created", Pid=0, ExitCode=0, OOMKilled=False, labels=labels)
    subprocess.Popen(  # noqa: S603 (this file)
        [sys.executable, "-S", __file__, "shim", name, *rest[1:]],
        env={"PATH": os.environ["PATH"], "FAKE_RUNTIME": str(HOME), **env},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _wait(lambda: _read(name)["Status"] != "created")
    if (HOME / "slow").exists():
        threading.Event().wait()
    _say(name)


def shim(_: list[tuple[str, str]], rest: list[str]) -> None:
    """Be the parent of a container's process."""
    name, *command = rest
    with (HOME / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 (a constant of the test)
            command, stdout=log, stderr=log, start_new_session=True
        )
    _write(name, **{**_read(name), "Status": "running", "Pid": process.pid})
    code = process.wait()
    if (HOME / f"{name}.json").exists():
        known = _read(name)
        code = 128 - code if code < 0 else code
        _write(name, **{**known, "Status": "exited", "Pid": 0, "ExitCode": code})


def inspect(options: list[tuple[str, str]], rest: list[str]) -> None:
    """Say how it is, or where."""
    if "NetworkSettings" in dict(options)["--format"]:
        _say(json.dumps(NETWORK))
        return
    _say(json.dumps({k: v for k, v in _read(rest[0]).items() if k != "labels"}))


def stop(options: list[tuple[str, str]], rest: list[str]) -> None:
    """Ask it, wait, and force it."""
    _signal(rest[0], signal.SIGTERM)
    if not _wait(lambda: _read(rest[0])["Status"] == "exited", float(dict(options)["--time"])):
        _signal(rest[0], signal.SIGKILL)


def kill(_: list[tuple[str, str]], rest: list[str]) -> None:
    """Force it, unless it is frozen, as older runtimes do not."""
    if _read(rest[0])["Status"] == "paused":
        sys.exit(f"Error: container {rest[0]} is paused. Unpause it before killing")
    _signal(rest[0], signal.SIGKILL)


def pause(_: list[tuple[str, str]], rest: list[str]) -> None:
    """Freeze it."""
    _signal(rest[0], signal.SIGSTOP)
    _write(rest[0], **{**_read(rest[0]), "Status": "paused"})


def unpause(_: list[tuple[str, str]], rest: list[str]) -> None:
    """Let it go on."""
    _signal(rest[0], signal.SIGCONT)
    _write(rest[0], **{**_read(rest[0]), "Status": "running"})


def logs(_: list[tuple[str, str]], rest: list[str]) -> None:
    """Say what it writes, until it has ended."""
    with (HOME / f"{rest[0]}.log").open("rb") as log:
        while True:
            is_over = (
                not (HOME / f"{rest[0]}.json").exists() or _read(rest[0])["Status"] == "exited"
            )
            sys.stdout.buffer.write(log.read())
            sys.stdout.flush()
            if is_over:
                return
            threading.Event().wait(0.01)


def remove(_: list[tuple[str, str]], rest: list[str]) -> None:
    """Forget it, and end it if it has not."""
    for name in rest:
        if _read(name)["Pid"]:
            _signal(name, signal.SIGKILL)
        (HOME / f"{name}.json").unlink()


def listing(options: list[tuple[str, str]], _: list[str]) -> None:
    """Say which containers have a label."""
    label = dict(options)["--filter"].removeprefix("label=")
    for path in HOME.glob("*.json"):
        if label in _read(path.stem)["labels"]:
            _say(path.stem)


VERBS = {
    "run": run,
    "shim": shim,
    "inspect": inspect,
    "stop": stop,
    "kill": kill,
    "pause": pause,
    "unpause": unpause,
    "logs": logs,
    "rm": remove,
    "ps": listing,
}


def _read(name: str) -> dict[str, Any]:
    try:
        return dict(json.loads((HOME / f"{name}.json").read_text()))
    except FileNotFoundError:
        sys.exit(f"Error: No such container: {name}")


def _signal(name: str, number: int) -> None:
    pid = _read(name)["Pid"]
    if not pid:  # Nobody, and to `kill` it would mean everybody.
        sys.exit(f"Error: container {name} is not running")
    os.kill(pid, number)


def _write(name: str, **known: Any) -> None:
    new = HOME / f"{name}.{os.getpid()}.new"
    new.write_text(json.dumps(known))
    new.rename(HOME / f"{name}.json")


def _wait(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    for _ in range(int(seconds * 100)):
        if condition():
            return True
        threading.Event().wait(0.01)
    return False


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
