"""The name server's settings: `--field-name` or TERN_NAMESRV_FIELD_NAME."""

from dataclasses import dataclass

from tern_namesrv.core.registration_rules import check_broker_group
from tern_service import setting
from tern_service.security_settings import SecuritySettings
from tern_wire.paths import PORT_NAMESRV

PREFIX = "TERN_NAMESRV_"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSettings(SecuritySettings):
    """TernMQ's name server: brokers register here, proxies and clients look up routes.

    Run one, or several side by side.
    """

    listen: str = setting("127.0.0.1", help="IP address to listen on; beyond loopback only with TLS")
    port: int = setting(PORT_NAMESRV, help="TCP port of HTTP, 0 for any free one", minimum=0, maximum=65_535)
    cluster: str = setting("dev", help="name of the cluster; registrations of other clusters are refused")
    # RocketMQ's figures: a broker counts as gone after three lost heartbeats of 30 s.
    expiry_ms: int = setting(120_000, help="a broker that is silent for this long is removed (ms)", minimum=100)
    scan_interval_ms: int = setting(5_000, help="how often silent brokers are looked for (ms)", minimum=10)
    # A little more than one heartbeat interval: by then every live broker has registered.
    warm_up_ms: int = setting(
        35_000, help="for this long at least unknown topics are 'warming-up', not 'not found' (ms)", minimum=0
    )
    expected_broker_groups: tuple[str, ...] = setting(
        (), help="names of all broker groups of the cluster: once each has told its topics, the warm-up is over"
    )
    data_dir: str = setting("", help="directory for what operators tell it; without one that is lost at a stop")
    print_interval_ms: int = setting(
        600_000, help="how often the configuration is printed, at level DEBUG (ms)", minimum=1_000
    )
    log_level: str = setting("INFO", help="DEBUG, INFO, WARNING or ERROR")

    def __post_init__(self) -> None:
        self.check_security()
        if not self.cluster:
            raise ValueError("--cluster is empty; give the cluster a name.")
        for name in self.expected_broker_groups:
            check_broker_group(name)
        if self.log_level.upper() not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
            raise ValueError(f"--log-level is '{self.log_level}'; use DEBUG, INFO, WARNING or ERROR.")
