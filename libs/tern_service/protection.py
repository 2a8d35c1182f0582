"""Safe by default: how a process is protected, and the rule to start.

Every listener on loopback: credentials are optional, with a notice. Any other: authentication and
TLS, or the process ends with 78.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

AUTO, REQUIRED, OFF = "auto", "required", "off"
UNDERSTOOD = "I-UNDERSTAND"

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


class AskedFor(Protocol):
    """What the settings of a process ask for (`SecuritySettings`)."""

    @property
    def auth(self) -> str:
        """auto, required or off."""

    @property
    def has_tls(self) -> bool:
        """Whether certificate files are given."""

    @property
    def insecure_no_auth(self) -> str:
        """UNDERSTOOD, or ""."""


def protection_of(settings: AskedFor, listens: Sequence[str]) -> Protection:
    """The protection of a process with these settings and listeners; ValueError if it must not
    start. Pure.
    """
    exposed = [listen for listen in listens if not is_loopback(listen)]
    requires_keys = settings.auth == REQUIRED or (settings.auth == AUTO and bool(exposed))
    if not exposed:
        return Protection(
            requires_keys=requires_keys, has_tls=settings.has_tls, notice="" if requires_keys else NOTICE_OPTIONAL
        )
    if requires_keys and settings.has_tls:
        return Protection(requires_keys=True, has_tls=True)
    if settings.insecure_no_auth == UNDERSTOOD:
        # Either missing TLS or disabled keys leaves everything open.
        requires_keys = settings.auth == REQUIRED
        return Protection(
            requires_keys=requires_keys, has_tls=settings.has_tls, is_insecure=True, notice=NOTICE_INSECURE
        )
    missing = []
    if not requires_keys:
        missing.append(f"--auth {settings.auth} must be auto or required")
    if not settings.has_tls:
        missing.append(
            "--tls-cert-file, --tls-key-file and --tls-ca-file must be given (ternmq init-cluster makes them)"
        )
    raise ValueError(
        f"'{exposed[0]}' (--listen) is not a loopback address, so authentication and TLS are required: {'; '.join(missing)}. "
        f"Or listen on 127.0.0.1."
    )


def is_loopback(listen: str) -> bool:
    """Whether only this machine reaches *listen*, an IP address or localhost; ValueError
    otherwise.
    """
    try:
        return ipaddress.ip_address("127.0.0.1" if listen == "localhost" else listen.strip("[]")).is_loopback
    except ValueError:
        raise ValueError(f"'{listen}' (--listen) is not an IP address; use 127.0.0.1, or 0.0.0.0 for all.") from None
