"""The broker's settings: `--field-name` or TERN_BROKER_FIELD_NAME."""

import re
from dataclasses import dataclass
from pathlib import Path

from tern_raft import RaftConfig
from tern_service import setting
from tern_service.security_settings import SecuritySettings
from tern_store import StoreLimits
from tern_store.retention import RetentionRules
from tern_wire.limits import (
    ENTRY_SIZE_MAX_BYTES,
    MEMBER_EXPIRY_MAX_MS,
    MEMBER_EXPIRY_MS,
    OLD_DATA_MIN_BYTES,
    SEGMENT_SIZE_DEFAULT_BYTES,
)
from tern_wire.limits_namespaces import NAMESPACE_SHARE_DEFAULT_PERCENT
from tern_wire.link.commands import STATE_MACHINE_VERSION
from tern_wire.paths import PORT_BROKER_HTTP, PORT_BROKER_LINK, PORT_BROKER_RAFT
from tern_wire.version import VERSION

PREFIX = "TERN_BROKER_"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_GROUP_SIZES = (1, 3, 5)
_EVERYWHERE = frozenset({"0.0.0.0", "::"})
_HOST = re.compile(r"[A-Za-z0-9._:-]{0,253}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(SecuritySettings):
    """TernMQ's broker. 1, 3 or 5 of them with the same --peers and --group-id are one replicated
    broker group.
    """

    cluster: str = setting("dev", help="name of the cluster")
    broker_group: str = setting("broker-a", help="name of the broker group; queues are written broker-a:3")
    node: str = setting("broker-a-0", help="name of this node; one of --peers")
    listen: str = setting("127.0.0.1", help="IP address to listen on; beyond loopback only with TLS")
    advertise: str = setting("", help="host name or address that others are told; by default --listen")
    link_port: int = setting(PORT_BROKER_LINK, help="TCP port for proxies", minimum=1, maximum=65_535)
    raft_port: int = setting(PORT_BROKER_RAFT, help="TCP port for peers", minimum=1, maximum=65_535)
    http_port: int = setting(PORT_BROKER_HTTP, help="TCP port of health and metrics", minimum=0, maximum=65_535)
    peers: tuple[str, ...] = setting(help="all members, this one included: name=host:raft-port,...")
    namesrv: tuple[str, ...] = setting((), help="URLs of the name servers")
    data_dir: Path = setting(help="directory of this node alone")
    cluster_key_file: Path = setting(help="file with the cluster's 32-byte key")
    group_id: str = setting(help="32 hex digits that all members share, made once")
    bootstrap: bool = setting(False, help="found the group: only at the very first start of all members")
    heartbeat_interval_ms: int = setting(30_000, help="how often to register (ms)", minimum=100)
    segment_size_bytes: int = setting(
        SEGMENT_SIZE_DEFAULT_BYTES, help="size of a log segment, fixed when the group is founded", minimum=16 << 20
    )
    retention_ms: int = setting(72 * 3_600_000, help="how long messages are kept (ms)", minimum=1)
    retention_bytes: int = setting(
        0, help="drop the oldest segments beyond so many bytes of log (0: no limit)", minimum=0
    )
    delete_hour: int = setting(4, help="hour of the day, local time, at which old segments go", minimum=0, maximum=23)
    disk_budget_bytes: int = setting(
        0, help="what the data directory may hold; 0: the marks of 75, 85 and 90 % are those of the disk", minimum=0
    )
    election_min_ms: int = setting(500, help="shortest silence of a leader before an election (ms)", minimum=400)
    election_max_ms: int = setting(1_000, help="longest such silence (ms)", minimum=500)
    namespace_share_percent: int = setting(
        NAMESPACE_SHARE_DEFAULT_PERCENT,
        help="of all topics, queues and groups that there may be, one namespace may have so much (%)",
        minimum=1,
        maximum=100,
    )
    member_expiry_ms: int = setting(
        MEMBER_EXPIRY_MS,
        help="a member of a group that is silent for this long is gone (ms)",
        minimum=1_000,
        maximum=MEMBER_EXPIRY_MAX_MS,
    )
    old_data_min_bytes: int = setting(
        OLD_DATA_MIN_BYTES, help="readers that are so far behind the end of the log are sent to a follower", minimum=0
    )
    log_level: str = setting("INFO", help="DEBUG, INFO, WARNING or ERROR")

    def __post_init__(self) -> None:
        self.check_security()
        self.check_urls("--namesrv", self.namesrv)
        if not self.advertise and self.listen.strip("[]") in _EVERYWHERE:
            raise ValueError(f"--listen {self.listen} is no address that others can reach; set one with --advertise.")
        if self.advertise in _EVERYWHERE or not _HOST.fullmatch(self.advertise):
            raise ValueError(f"--advertise is '{self.advertise}'; use a host name or an address that others can reach.")
        for option, name in (("--broker-group", self.broker_group), ("--node", self.node)):
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"{option} is '{name}'; use 1 to 31 small letters, digits or '-'.")
        if re.fullmatch(r"[0-9a-f]{32}", self.group_id) is None:
            raise ValueError("--group-id is not 32 hex digits; make one with `openssl rand -hex 16`.")
        if self.election_max_ms <= self.election_min_ms:
            raise ValueError("--election-max-ms must be greater than --election-min-ms.")
        if self.log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise ValueError(f"--log-level is '{self.log_level}'; use DEBUG, INFO, WARNING or ERROR.")
        members = self.members()
        if self.node not in members:
            raise ValueError(f"--peers does not name this node '{self.node}'.")
        if len(members) not in _GROUP_SIZES:
            raise ValueError(f"--peers names {len(members)} nodes; a broker group has 1, 3 or 5.")
        if members[self.node][1] != self.raft_port:
            raise ValueError(
                f"--peers says port {members[self.node][1]} for '{self.node}', --raft-port {self.raft_port}."
            )

    def members(self) -> dict[str, tuple[str, int]]:
        """Return names and (host, Raft port) of all members; ValueError for malformed --peers."""
        found: dict[str, tuple[str, int]] = {}
        for peer in self.peers:
            match = re.fullmatch(r"([a-z0-9-]+)=([^:]+):(\d{1,5})", peer)
            if match is None or match[1] in found:
                raise ValueError(f"--peers: '{peer}' is not a new name=host:port.")
            found[match[1]] = (match[2], int(match[3]))
        return found

    def address(self, port: int) -> str:
        """Return the address of *port* of this node for others: host:port, an IPv6 address in
        brackets.
        """
        host = (self.advertise or self.listen).strip("[]")
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def retention(self) -> RetentionRules:
        """Return the rules by which segments are dropped."""
        return RetentionRules(
            retention_ms=self.retention_ms, delete_hour=self.delete_hour, size_max_bytes=self.retention_bytes
        )

    def raft(self) -> RaftConfig:
        """Return this node as a member of its group."""
        return RaftConfig(
            node=self.node,
            members=self.members(),
            group_id=bytes.fromhex(self.group_id),
            directory=self.data_dir,
            bootstrap=self.bootstrap,
            segment_size_bytes=self.segment_size_bytes,
            election_min_s=self.election_min_ms / 1000,
            election_max_s=self.election_max_ms / 1000,
            version=self.state_machine_version(),
            http_port=self.http_port,
        )

    def state_machine_version(self) -> int:
        """Return the version that this release supports; tests have nodes of several releases."""
        return STATE_MACHINE_VERSION

    def release_name(self) -> str:
        """Return a unique name of this release: an entry that it cannot apply may be tried by
        another one.
        """
        return f"{VERSION} (state machine {self.state_machine_version()})"

    def store_limits(self) -> StoreLimits:
        """Return sizes of files and buffers; tests shrink them together."""
        return StoreLimits(entry_size_max_bytes=ENTRY_SIZE_MAX_BYTES)

    def read_key(self) -> bytes:
        """Return the cluster's key; ValueError naming the file when it is not 32 bytes."""
        try:
            key = self.cluster_key_file.read_bytes()
        except OSError as error:
            raise ValueError(f"--cluster-key-file {self.cluster_key_file} cannot be read: {error.strerror}.") from error
        if len(key) != 32:
            raise ValueError(f"--cluster-key-file {self.cluster_key_file} has {len(key)} bytes, not 32.")
        return key
