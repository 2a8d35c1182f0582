"""How a process is protected, and what it says about it when it starts."""

from dataclasses import dataclass

# The loopback notice without credentials, and the one that shouts.
NOTICE_OPTIONAL = "Every listener is on loopback, so credentials are optional."
NOTICE_INSECURE = (
    "INSECURE: this process listens beyond loopback without authentication or TLS, because --insecure-no-auth says so."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """How a process is protected. *requires_keys*: clients prove who they are; *notice*: "" when there is nothing to say."""

    requires_keys: bool
    has_tls: bool
    is_insecure: bool = False
    notice: str = ""
