"""The checker's settings: `--field-name` or TERN_TXN_CHECKER_FIELD_NAME."""

from dataclasses import dataclass
from pathlib import Path

from tern_service.security_settings import SecuritySettings
from tern_service.settings import setting
from tern_wire.checks.urls import CheckHosts
from tern_wire.limits import CHECKER_NAME_LENGTH_MAX, CLAIM_MAX_MS, WAIT_MAX_MS
from tern_wire.paths import PORT_TXN_CHECKER

PREFIX = "TERN_TXN_CHECKER_"
# Time for a check to wait for its turn. The timeout of the call, set by its producer group, is
# added.
CLAIM_DEFAULT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerSettings(SecuritySettings):
    """TernMQ's transaction checker: requests outcomes of open transactions from their producers.

    Stateless; run any number of checkers.
    """

    namesrv: tuple[str, ...] = setting(help="URLs of the name servers, such as http://127.0.0.1:9876")
    cluster_key_file: Path = setting(help="file with the 32 bytes that all processes of the mesh share, mode 0600")
    listen: str = setting(
        "127.0.0.1", help="IP address to listen on, for health and metrics; beyond loopback only with TLS"
    )
    port: int = setting(PORT_TXN_CHECKER, help="TCP port of HTTP, 0 for any free one", minimum=0, maximum=65_535)
    cluster: str = setting("dev", help="the cluster's name, as the brokers register it")
    name: str = setting("", help="its name in the history of checks; by default one is made up")
    check_hosts: tuple[str, ...] = setting(
        (),
        help="whom it may call: host, host:port, host:*, *.example.com, or a network; addresses that are not public are listed by themselves; "
        "none: nobody",
    )
    check_http: bool = setting(
        False,
        help="whether private addresses may be called by http, which whoever is on the way can read; loopback ones may, public ones never",
    )
    ca_file: str = setting("", help="PEM file of certificates to trust in callbacks beside the machine's own")
    claim_ms: int = setting(
        CLAIM_DEFAULT_MS,
        help="how long a check is this checker's, beside its producer group's timeout; those of one that died are handed on after that (ms)",
        minimum=1_000,
        maximum=CLAIM_MAX_MS,
    )
    wait_ms: int = setting(
        20_000, help="how long a broker lets it wait for checks (ms)", minimum=0, maximum=WAIT_MAX_MS
    )
    route_interval_ms: int = setting(30_000, help="how often routes are asked for (ms)", minimum=100, maximum=300_000)
    calls_max: int = setting(1_024, help="callbacks under way at a time", minimum=1, maximum=16_384)
    calls_per_host_max: int = setting(4, help="callbacks under way at one host and port", minimum=1, maximum=256)
    held_max: int = setting(
        4_096, help="checks held at a time, those that wait among them", minimum=128, maximum=65_536
    )
    log_level: str = setting("INFO", help="DEBUG, INFO, WARNING or ERROR")

    def __post_init__(self) -> None:
        self.check_security()
        if not self.namesrv:
            raise ValueError("--namesrv is empty; give at least one URL, such as http://127.0.0.1:9876.")
        self.check_urls("--namesrv", self.namesrv)
        if len(self.name) > CHECKER_NAME_LENGTH_MAX or not self.name.isprintable():
            raise ValueError(f"--name has at most {CHECKER_NAME_LENGTH_MAX} characters that can be printed.")
        if self.ca_file and not Path(self.ca_file).is_file():
            raise ValueError(f"'{self.ca_file}' (--ca-file) is not a file.")
        if self.log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise ValueError(f"'{self.log_level}' (--log-level) is no level; use DEBUG, INFO, WARNING or ERROR.")
        self.hosts()

    def hosts(self) -> CheckHosts:
        """Return the hosts that may be called; ValueError when the list is malformed."""
        return CheckHosts.parse(",".join(self.check_hosts), is_http_allowed=self.check_http)
