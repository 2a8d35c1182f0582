"""How a process is protected, and its notice about that at the start."""

from dataclasses import dataclass

# Notices: for loopback without credentials, and for insecure processes.
NOTICE_OPTIONAL = "Every listener is on loopback, so credentials are optional."
NOTICE_INSECURE = (
    "INSECURE: this process listens beyond loopback without authentication or TLS, because --insecure-no-auth says so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """How a process is protected.
    *requires_keys*: clients must authenticate; *notice*: "" for none.
    """

    requires_keys: bool
    has_tls: bool
    is_insecure: bool = False
    notice: str = ""
