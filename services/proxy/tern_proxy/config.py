"""Settings of the proxy."""

from dataclasses import dataclass
from pathlib import Path

from tern_service.security_settings import SecuritySettings
from tern_service.settings import setting
from tern_wire.checks.urls import CheckHosts
from tern_wire.limits_namespaces import CREATIONS_BURST_DEFAULT, CREATIONS_PER_S_DEFAULT
from tern_wire.paths import PORT_PROXY


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings(SecuritySettings):
    """TernMQ's HTTP API: produce, receive, settle, pull and admin for all clients.

    Stateless; run any number of proxies.
    """

    namesrv: tuple[str, ...] = setting(help="URLs of the name servers, such as http://127.0.0.1:9876")
    cluster_key_file: Path = setting(help="file with the 32 bytes that all processes of the mesh share, mode 0600")
    listen: str = setting("127.0.0.1", help="IP address to listen on; beyond loopback only with TLS and keys")
    port: int = setting(PORT_PROXY, help="port to listen on", minimum=0, maximum=65_535)
    cluster: str = setting("dev", help="the cluster's name, as the brokers register it")
    # RocketMQ's interval. Routes that prove wrong are refreshed at once, so this bounds only the
    # delay of harmless changes.
    route_interval_ms: int = setting(
        30_000, help="how often complete routes are asked for (ms)", minimum=100, maximum=300_000
    )
    auto_create_topics: bool = setting(False, help="create a topic at the first send to it")
    auto_create_groups: bool = setting(
        False, help="create a consumer group at its first receive, and a producer group at its first transaction"
    )
    creations_per_s: int = setting(
        CREATIONS_PER_S_DEFAULT,
        help="new topics and groups a second that one principal, or address, may make here once it has used up its burst; 0: any",
        minimum=0,
        maximum=10_000,
    )
    creations_burst: int = setting(
        CREATIONS_BURST_DEFAULT, help="new topics and groups that it may make at once", minimum=1, maximum=100_000
    )
    check_hosts: tuple[str, ...] = setting(
        (),
        help="where check URLs of producer groups may lead: host, host:port, host:*, *.example.com, or a network; none: nowhere",
    )
    check_http: bool = setting(
        False,
        help="whether private addresses may be called by http, which whoever is on the way can read; loopback ones may, public ones never",
    )
    log_level: str = setting("INFO", help="DEBUG, INFO, WARNING or ERROR")

    def __post_init__(self) -> None:
        self.check_security()
        if not self.namesrv:
            raise ValueError("--namesrv is empty; give at least one URL, such as http://127.0.0.1:9876.")
        self.check_urls("--namesrv", self.namesrv)
        self.parse_check_hosts()
        if self.log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise ValueError(f"'{self.log_level}' (--log-level) is no level; use DEBUG, INFO, WARNING or ERROR.")

    def parse_check_hosts(self) -> CheckHosts:
        """Return `check_hosts`, parsed. Raise ValueError that names an illegal entry."""
        return CheckHosts.parse(",".join(self.check_hosts), is_http_allowed=self.check_http)
