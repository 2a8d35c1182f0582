"""The processes of a mesh, with their commands and ports. Pure: paths and ids are arguments.

`ternmq up` sends a plan to the supervisor as JSON. Standard library only, so that the supervisor
stays small.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tern_cli.mesh.supervision import KILL_AFTER_S

BROKER_GROUP = "broker-a"
HOST = "127.0.0.1"
# Distance between the first ports of two neighbouring brokers. Link, Raft and HTTP take three
# ports; the rest keeps the numbers readable.
BROKER_PORT_STEP = 10
# Faster than production's 30 s and 120 s: a killed broker leaves the routes within 5 s. The warm-up
# (35 s) delays no start: it ends once the one broker group has reported its topics.
NAMESRV_PACE = ("--expiry-ms", "5000", "--scan-interval-ms", "500")
# Two of them may be lost. Roles and topics are told at once; each costs the mesh 1 ms of CPU time.
HEARTBEAT = ("--heartbeat-interval-ms", "2000")
# A mesh on one machine creates whatever is sent to; in production an operator creates topics and
# groups.
AUTO_CREATE = ("--auto-create-topics", "--auto-create-groups")
ROUTES_PACE = ("--route-interval-ms", "1000")
# A killed checker's transactions wait until its claims expire: this time, and the timeout of the
# callback to the producer group.
CLAIM_PACE = ("--claim-ms", "5000")
# Callbacks stay on this machine, like all other traffic of the mesh.
CHECK_HOSTS = "127.0.0.1,localhost,[::1]"
BOOTSTRAP = "--bootstrap"
SEGMENT_MAX_BYTES = 1 << 30
# Of a broker whose share of the budget is small: what is not full, and one to drop.
_SEGMENTS_MIN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshShape:
    """Number of processes of each role and their first ports.
    Kept in cluster.json, so that the next `up` needs no options.
    """

    cluster: str = "tern"
    brokers: int = 3
    proxies: int = 1
    namesrvs: int = 1
    checkers: int = 1
    proxy_port: int = 8080
    namesrv_port: int = 9876
    broker_port: int = 10911
    # Behind nine proxies, the maximum.
    checker_port: int = 8090
    # TLS and keys, as required beyond loopback; certificates are in the data directory.
    secure: bool = False
    # Hosts that checkers may call, in the syntax of tern_wire.checks.urls.
    check_hosts: str = CHECK_HOSTS
    # Whether hosts of check_hosts with private addresses may be called by http.
    check_http: bool = False
    # 0: the broker's default. A new mesh gets a size that fits its budget.
    segment_size_bytes: int = 0
    # Maximum size of the brokers' files together. 0: no budget; the marks of 75, 85 and 90 % apply
    # to the disk. -1: not decided yet.
    disk_budget_bytes: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process: its command, and its ports by use (`http`, `link`, `raft`)."""

    name: str
    role: str
    argv: tuple[str, ...]
    ports: Mapping[str, int] = field(default_factory=dict)
    # Whether its HTTP port uses TLS.
    is_secure: bool = False

    @property
    def url(self) -> str:
        """Return the URL of its HTTP port."""
        return f"{'https' if self.is_secure else 'http'}://{HOST}:{self.ports.get('http', 0)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPlan:
    """All processes of a mesh, in the order of their start, and the time limit of a stop."""

    cluster: str
    data_dir: str
    processes: tuple[ProcessPlan, ...]
    stop_within_s: float = KILL_AFTER_S

    def ports(self) -> list[tuple[int, ProcessPlan, str]]:
        """Return every port with its process and its use."""
        return [(port, process, use) for process in self.processes for use, port in process.ports.items()]

    def endpoints(self, role: str) -> list[str]:
        """Return the HTTP addresses of all processes of *role*."""
        return [process.url for process in self.processes if process.role == role]


def shape_from_base(shape: dict[str, Any], port_base: int) -> dict[str, Any]:
    """Return *shape* with all ports in one range of 100.
    Proxies are at +0, name servers at +10, brokers at +20, +30 ... +60, checkers at +70.
    """
    return {
        **shape,
        "proxy_port": port_base,
        "namesrv_port": port_base + 10,
        "broker_port": port_base + 20,
        "checker_port": port_base + 70,
    }


def plan_mesh(shape: MeshShape, *, data_dir: str, group_id: str, python: str) -> MeshPlan:
    """Return the processes of *shape*; *data_dir* is absolute, *group_id* has 32 hex digits.
    Brokers carry --bootstrap; the supervisor leaves it out once the group is born.
    """
    processes = (
        *(_namesrv(shape, number, python, data_dir) for number in range(shape.namesrvs)),
        *(_broker(shape, number, python, data_dir, group_id) for number in range(shape.brokers)),
        *(_proxy(shape, number, python, data_dir) for number in range(shape.proxies)),
        *(_checker(shape, number, python, data_dir) for number in range(shape.checkers)),
    )
    return MeshPlan(
        cluster=shape.cluster,
        data_dir=data_dir,
        processes=tuple(_protected(shape, process, data_dir) for process in processes),
    )


def member_names(brokers: int) -> list[str]:
    """Return the nodes of the broker group."""
    return [f"{BROKER_GROUP}-{number}" for number in range(brokers)]


def _namesrvs(shape: MeshShape) -> str:
    scheme = "https" if shape.secure else "http"
    return ",".join(f"{scheme}://{HOST}:{shape.namesrv_port + number}" for number in range(shape.namesrvs))


def certificate_role(role: str) -> str:
    """Return the role in the certificate of a process of *role*."""
    return {"namesrv": "name-server", "txn-checker": "checker"}.get(role, role)


def _protected(shape: MeshShape, plan: ProcessPlan, data_dir: str) -> ProcessPlan:
    """Return *plan* with its certificate if the mesh is secure; its proxies then require a key."""
    if not shape.secure:
        return plan
    pair = f"{data_dir}/certs/{certificate_role(plan.role)}/{plan.name}"
    argv = [*plan.argv, "--tls-cert-file", f"{pair}.crt", "--tls-key-file", f"{pair}.key"]
    argv += ["--tls-ca-file", f"{data_dir}/ca.crt", "--auth", "required"]
    return replace(plan, argv=tuple(argv), is_secure=True)


def _namesrv(shape: MeshShape, number: int, python: str, data_dir: str) -> ProcessPlan:
    name, port = f"namesrv-{number}", shape.namesrv_port + number
    argv = [python, "-P", "-m", "tern_namesrv", "--listen", HOST, "--port", str(port), "--cluster", shape.cluster]
    argv += ["--data-dir", f"{data_dir}/data/{name}"]
    # The complete list: a name server that has registered these groups need not wait, and no first
    # send is answered `warming-up`.
    expected = ("--expected-broker-groups", BROKER_GROUP)
    return ProcessPlan(name=name, role="namesrv", argv=(*argv, *NAMESRV_PACE, *expected), ports={"http": port})


def _broker(shape: MeshShape, number: int, python: str, data_dir: str, group_id: str) -> ProcessPlan:
    names = member_names(shape.brokers)
    first = [shape.broker_port + BROKER_PORT_STEP * at for at in range(shape.brokers)]
    peers = ",".join(f"{name}={HOST}:{port + 1}" for name, port in zip(names, first, strict=True))
    node, link = names[number], first[number]
    argv = [
        python,
        "-P",
        "-m",
        "tern_broker",
        "--cluster",
        shape.cluster,
        "--broker-group",
        BROKER_GROUP,
        "--node",
        node,
    ]
    argv += ["--listen", HOST, "--link-port", str(link), "--raft-port", str(link + 1), "--http-port", str(link + 2)]
    argv += ["--peers", peers, "--namesrv", _namesrvs(shape), "--data-dir", f"{data_dir}/data/{node}"]
    argv += ["--cluster-key-file", f"{data_dir}/cluster.key", "--group-id", group_id, *HEARTBEAT]
    if shape.segment_size_bytes:
        argv += ["--segment-size-bytes", str(shape.segment_size_bytes)]
    if shape.disk_budget_bytes > 0:
        segment = shape.segment_size_bytes or SEGMENT_MAX_BYTES
        share = max(shape.disk_budget_bytes // shape.brokers, _SEGMENTS_MIN * segment)
        argv += ["--disk-budget-bytes", str(share)]
    ports = {"link": link, "raft": link + 1, "http": link + 2}
    return ProcessPlan(name=node, role="broker", argv=(*argv, BOOTSTRAP), ports=ports)


def _proxy(shape: MeshShape, number: int, python: str, data_dir: str) -> ProcessPlan:
    port = shape.proxy_port + number
    argv: tuple[str, ...] = (
        python,
        "-P",
        "-m",
        "tern_proxy",
        "--listen",
        HOST,
        "--port",
        str(port),
        "--cluster",
        shape.cluster,
    )
    argv += ("--namesrv", _namesrvs(shape), "--cluster-key-file", f"{data_dir}/cluster.key", *ROUTES_PACE, *AUTO_CREATE)
    argv += ("--check-hosts", shape.check_hosts, *_check_http(shape))
    return ProcessPlan(name=f"proxy-{number}", role="proxy", argv=argv, ports={"http": port})


def _check_http(shape: MeshShape) -> tuple[str, ...]:
    return ("--check-http",) if shape.check_http else ()


def _checker(shape: MeshShape, number: int, python: str, data_dir: str) -> ProcessPlan:
    name, port = f"txn-checker-{number}", shape.checker_port + number
    argv = [python, "-P", "-m", "tern_txn_checker", "--listen", HOST, "--port", str(port), "--cluster", shape.cluster]
    argv += ["--namesrv", _namesrvs(shape), "--cluster-key-file", f"{data_dir}/cluster.key", "--name", name]
    argv += ["--check-hosts", shape.check_hosts, *_check_http(shape), *ROUTES_PACE, *CLAIM_PACE]
    return ProcessPlan(name=name, role="txn-checker", argv=tuple(argv), ports={"http": port})


def plan_to_document(plan: MeshPlan) -> dict[str, Any]:
    """Return *plan* as a JSON document."""
    return asdict(plan)


def plan_from_document(document: Mapping[str, Any]) -> MeshPlan:
    """Return the plan in a JSON document."""
    processes = tuple(ProcessPlan(**{**process, "argv": tuple(process["argv"])}) for process in document["processes"])
    return MeshPlan(**{**document, "processes": processes})
