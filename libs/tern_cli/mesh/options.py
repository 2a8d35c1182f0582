"""Differences between the options of `ternmq up` and the running mesh. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tern_cli.mesh.plan import MeshShape, shape_from_base

# Field of MeshShape -> option, in the order of --help.
OPTIONS = {
    "brokers": "--brokers",
    "proxies": "--proxies",
    "namesrvs": "--namesrvs",
    "checkers": "--checkers",
    "proxy_port": "--proxy-port",
    "namesrv_port": "--namesrv-port",
    "broker_port": "--broker-port",
    "checker_port": "--checker-port",
    "secure": "--secure",
    "check_hosts": "--check-hosts",
    "check_http": "--check-http",
    "cluster": "--cluster",
    "disk_budget_bytes": "--disk-budget",
    "segment_size_bytes": "--segment-size-bytes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedOptions:
    """Options given to `up`.
    *fields*: fields of MeshShape that were given. *port_base*: the first port of a range, 0 when
    not given. *foreground*: whether the supervisor stays in the foreground.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    port_base: int = 0
    foreground: bool = False

    def wanted(self) -> dict[str, Any]:
        """Return the fields of MeshShape that the options set.
        An option for one port overrides --port-base.
        """
        return {**(shape_from_base({}, self.port_base) if self.port_base else {}), **self.fields}


def differences(asked: AskedOptions, running: MeshShape) -> list[str]:
    """Return a text for each given option that differs from *running*, with the running value."""
    found: list[str] = []
    for name, option in OPTIONS.items():
        if name in asked.fields and asked.fields[name] != getattr(running, name):
            found.append(f"{option} {asked.fields[name]} (it runs with {getattr(running, name)})")
    from_base = asked.wanted().keys() - asked.fields.keys()
    moved = [name for name in OPTIONS if name in from_base and asked.wanted()[name] != getattr(running, name)]
    if moved:
        ports = ", ".join(f"{OPTIONS[name]} {getattr(running, name)}" for name in moved)
        found.append(f"--port-base {asked.port_base} (it runs with {ports})")
    if asked.foreground:
        found.append("--foreground (it runs under a supervisor already)")
    return found
