"""The two lock files say the same, and send nobody to a private host."""

import re
import tomllib

_PUBLIC = {"files.pythonhosted.org", "pypi.org"}


def lock_breaches(uv_lock: str, requirements: str) -> list[str]:
    """How the lock of the pip path differs from uv's, and hosts that not everybody can reach."""
    packages = tomllib.loads(uv_lock)["package"]
    locked = {f"{p['name']}=={p['version']}" for p in packages if "registry" in p["source"]}
    pinned = set(re.findall(r"^([\w.-]+==[^\s;\\]+)", requirements, re.MULTILINE))
    hosts = set(re.findall(r"https?://([^/\"\s]+)", uv_lock + requirements))
    return [
        *(f"{name} is in uv.lock only; run make lock" for name in sorted(locked - pinned)),
        *(f"{name} is in requirements-dev.lock only" for name in sorted(pinned - locked)),
        *(f"{host} is not a public index" for host in sorted(hosts - _PUBLIC)),
    ]
