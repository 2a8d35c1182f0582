"""URLs that callbacks may call: the rules against server side request forgery.

Pure. Proxies apply the rules when a URL is set, checkers before each call. An operator lists hosts
(`--check-hosts`, separated by commas); all others are never called:

    hooks.example.com          this name, ports 80, 443 and those from 1,024 on
    hooks.example.com:8443     this name, this port
    hooks.example.com:*        this name, every port
    *.example.com              names below example.com, not itself; ports as above
    127.0.0.1  [::1]           this address; ports as above
    10.1.0.0/16  [fd00::/8]    these addresses; `10.1.0.0/16:8443`, `[fd00::/8]:*`

Names and addresses are listed separately. A name is trusted for public addresses only, because the
owner of its zone decides its addresses. If a name resolves to a loopback, private or link-local
address, that address must be listed, too, by itself or within a network, with the port. So
`localhost` needs `localhost,127.0.0.1,[::1]`. Every address of a name must be allowed, or none is
called. Some addresses are never allowed, listed or not (`checks/addresses.py`). Public addresses
are called by https only. So are private and link-local ones, unless `--check-http` is on: without
TLS any intermediary can read the messages. Loopback addresses have no intermediary.

A URL has one spelling: ASCII, http or https, no user name, no fragment, no escape in the host, no
trailing dot, an IPv4 address as four decimal numbers. So every other parser would call the host
that is checked here. Reference: RFC 3986; OWASP API7:2023, server side request forgery.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from tern_wire.checks.addresses import Address, Network, never_called, require_address
from tern_wire.errors import CheckUrlForbidden
from tern_wire.limits import CHECK_URL_SIZE_MAX_BYTES

_DEFAULT_PORTS = {"http": 80, "https": 443}
# Lowest port of a host listed without a port: below are the host's own services (ssh, mail, ...),
# which never answer checks.
_UNPRIVILEGED_PORT_MIN = 1_024
_EVERY_PORT, _USUAL_PORTS = -1, 0
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# Last labels that old parsers take for an IPv4 address in one of its many forms.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PATH = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*")
_HOST_SIZE_MAX_CHARS = 253
_SHOWN_MAX_CHARS = 80
_LOOPBACK = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_HTTP_REMEDY = (
    "Use https; or let proxies and checkers call private hosts by http, with --check-http (TERNMQ_CHECK_HTTP)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckUrl:
    """Allowed URL in its one spelling: lower-case host, IPv6 address without brackets, explicit
    port, path with query.
    """

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """Return the value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def address(self) -> Address | None:
        """Return the host if it is an address; None for a name."""
        return None if _is_name(self.host) else ip_address(self.host)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """List entry: a name (with a leading dot: names below it) or a network of one or more
    addresses, and its ports.
    """

    name: str
    network: Network | None
    port: int

    def allows_port(self, port: int) -> bool:
        if self.port == _USUAL_PORTS:
            return port in _DEFAULT_PORTS.values() or port >= _UNPRIVILEGED_PORT_MIN
        return self.port in {_EVERY_PORT, port}

    def matches(self, host: str | Address) -> bool:
        if isinstance(host, str):
            return host == self.name or (self.name.startswith(".") and host.endswith(self.name))
        return self.network is not None and host in self.network


@dataclass(frozen=True, slots=True)
class CheckHosts:
    """Hosts that an operator has listed. *is_http_allowed*: private ones by http, too.

    Immutable.
    """

    entries: tuple[_Listed, ...] = ()
    is_http_allowed: bool = False

    @classmethod
    def parse(cls, text: str, *, is_http_allowed: bool = False) -> "CheckHosts":
        """Parse a comma-separated list, "" for none.

        Raise ValueError with a sentence that names the illegal entry.
        """
        entries = tuple(_read_entry(entry.strip().lower()) for entry in text.split(",") if entry.strip())
        return cls(entries, is_http_allowed)

    def require_allowed(self, url: str) -> CheckUrl:
        """Return *url*, parsed; raise CheckUrlForbidden with the reason when it must not be called.

        The addresses of a name are not known here.
        """
        found = _read_url(url)
        host = found.address or found.host
        listed = [entry for entry in self.entries if entry.matches(host)]
        if not listed:
            raise _forbidden(f"'{found.host}' is not among the hosts that may be called")
        if not any(entry.allows_port(found.port) for entry in listed):
            raise _forbidden(f"Port {found.port} of '{found.host}' is not among those that may be called")
        if found.address is not None:
            self.require_address(found, found.host)
        elif found.scheme == "http" and not self.is_http_allowed and not self._lists_loopback:
            # No address of the name would allow a call, so setting the URL fails early.
            raise _forbidden(f"'{found.host}' would be called by http. {_HTTP_REMEDY}")
        return found

    def require_address(self, url: CheckUrl, address: str) -> None:
        """Raise CheckUrlForbidden unless the allowed *url* may be called at *address*, to which its
        host resolves.
        """
        found = _read_address(address)
        is_listed = any(entry.matches(found) and entry.allows_port(url.port) for entry in self.entries)
        is_public = require_address(found, is_listed=is_listed)
        if is_public and url.scheme != "https":
            raise _forbidden(f"{found} is a public address, and those are called by https only")
        if url.scheme == "http" and not (found.is_loopback or self.is_http_allowed):
            raise _forbidden(f"{found} is not on this machine, and would be called by http. {_HTTP_REMEDY}")

    @property
    def _lists_loopback(self) -> bool:
        return any(entry.matches(address) for entry in self.entries for address in _LOOPBACK)


def _read_url(url: str) -> CheckUrl:
    if len(url) > CHECK_URL_SIZE_MAX_BYTES:
        raise _forbidden(f"The URL has {len(url)} characters; at most {CHECK_URL_SIZE_MAX_BYTES} are allowed")
    if not url.isascii():
        raise _forbidden("The URL has characters outside ASCII; write such a name in Punycode, and escape its path")
    if not url.isprintable() or " " in url or "\\" in url:
        raise _forbidden("The URL has spaces, control characters or backslashes")
    scheme, colon, rest = url.partition("://")
    scheme = scheme.lower()
    if not colon or scheme not in _DEFAULT_PORTS:
        raise _forbidden("The URL does not begin with https:// or http://")
    if "#" in rest:
        raise _forbidden("The URL has a fragment")
    authority_end = next((at for at, sign in enumerate(rest) if sign in "/?"), len(rest))
    authority, path = rest[:authority_end].lower(), rest[authority_end:]
    if "@" in authority:
        raise _forbidden("The URL has a user name or a password")
    if _PATH.fullmatch(path) is None:
        raise _forbidden("The URL's path has characters that must be escaped")
    host, port = _read_authority(authority)
    return CheckUrl(
        scheme=scheme,
        host=host,
        port=_DEFAULT_PORTS[scheme] if port is None else port,
        path=path if path.startswith("/") else f"/{path}",
    )


def _read_authority(authority: str) -> tuple[str, int | None]:
    """Return host and port; None for the scheme's default port."""
    if authority.startswith("["):
        inside, bracket, tail = authority[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise _forbidden("The URL's address is not written as [address] or [address]:port")
        host, colon, port = str(_read_ipv6(inside)), tail[:1], tail[1:]
    else:
        host, colon, port = authority.partition(":")
        host = _read_host(host)
    if not colon:
        return host, None
    if _PORT.fullmatch(port) is None or int(port) > 65_535:
        raise _forbidden(f"'{port[:_SHOWN_MAX_CHARS]}' is no port from 1 to 65535")
    return host, int(port)


def _read_ipv6(text: str) -> IPv6Address:
    if "%" in text:
        raise _forbidden("The URL's address has a zone")
    try:
        return IPv6Address(text)
    except ValueError as error:
        raise _forbidden(f"'[{text[:_SHOWN_MAX_CHARS]}]' is no IPv6 address") from error


def _read_host(host: str) -> str:
    """Return a name or an IPv4 address."""
    shown = host[:_SHOWN_MAX_CHARS]
    if not host:
        raise _forbidden("The URL names no host")
    if "%" in host:
        raise _forbidden("The URL's host has an escape or a zone")
    if host.endswith("."):
        raise _forbidden(f"'{shown}' ends with a dot")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            return str(IPv4Address(host))
        except ValueError as error:
            raise _forbidden(f"'{shown}' is no IPv4 address of four decimal numbers") from error
    if not _is_name(host):
        raise _forbidden(f"'{shown}' is no name of a host")
    return host


def _is_name(host: str) -> bool:
    if len(host) > _HOST_SIZE_MAX_CHARS or _NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    return all(_LABEL.fullmatch(label) for label in host.split("."))


def _read_address(text: str) -> Address:
    """Return an address from a resolver."""
    try:
        return IPv6Address(text.partition("%")[0]) if ":" in text else IPv4Address(text)
    except ValueError as error:
        raise _forbidden(f"'{text[:_SHOWN_MAX_CHARS]}' is no address") from error


def _read_entry(entry: str) -> _Listed:
    """Parse one entry (lower case); raise ValueError when it has none of the forms above."""
    host, port = _split_entry(entry)
    if host.startswith("*.") and _is_name(host[2:]):
        return _Listed(name=host[1:], network=None, port=port)
    if _is_name(host):
        return _Listed(name=host, network=None, port=port)
    network = _read_network(host)
    if network is None:
        raise ValueError(
            f"'{entry}' is no host that may be called; write it like hooks.example.com, hooks.example.com:8443, "
            "*.example.com, 127.0.0.1:*, [::1] or 10.1.0.0/16."
        )
    if what := never_called(network):
        raise ValueError(f"'{entry}' is {what}, and such are never called; leave it out.")
    return _Listed(name="", network=network, port=port)


def _read_network(host: str) -> Network | None:
    """Return one address, or a network without bits behind its prefix; None for others and for
    addresses with a zone.
    """
    try:
        return None if "%" in host else ip_network(host)
    except ValueError:
        return None


def _split_entry(entry: str) -> tuple[str, int]:
    """Return host and port of an entry; an IPv6 address without its brackets."""
    if entry.startswith("["):
        host, bracket, tail = entry[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError(f"'{entry}' has brackets, but is not [address] or [address]:port.")
        text = tail[1:] if tail else None
    elif entry.count(":") > 1:
        host, text = entry, None
    else:
        host, colon, port = entry.partition(":")
        text = port if colon else None
    if text is None:
        return host, _USUAL_PORTS
    if text == "*":
        return host, _EVERY_PORT
    if _PORT.fullmatch(text) is None or int(text) > 65_535:
        raise ValueError(f"'{entry}' ends with no port from 1 to 65535; for every port write '{host}:*'.")
    return host, int(text)


def _forbidden(reason: str) -> CheckUrlForbidden:
    return CheckUrlForbidden(reason=reason)
