"""Addresses that callbacks may call: never, only if listed, or always, by kind of address. Pure.

Never: addresses of cloud metadata, unspecified, multicast, broadcast, documentation and reserved
ones, IPv6 link-local ones (they need a zone), and IPv6 forms that contain an IPv4 address (mapped,
compatible, NAT64, 6to4, Teredo), because the IPv4 address itself has one spelling. Only if listed:
loopback, IPv4 link-local and private addresses, including the shared addresses of carriers and
those for benchmarks. Reference: RFC 6890 with IANA's registries of special-purpose addresses; the
documentation of the clouds for their metadata services.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from tern_wire.errors import CheckUrlForbidden

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_PUBLIC_IPV6 = IPv6Network("2000::/3")


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


# Never called, with the reason; the first match counts.
_NEVER: tuple[tuple[str, tuple[Network, ...]], ...] = (
    (
        "a cloud's metadata address",
        _networks(
            *("169.254.169.0/24", "169.254.170.0/24", "169.254.0.23/32", "100.100.100.200/32", "168.63.129.16/32"),
            *("192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::/32"),
        ),
    ),
    ("an unspecified address", _networks("0.0.0.0/8", "::/128")),
    ("a multicast address", _networks("224.0.0.0/4", "ff00::/8")),
    ("an IPv4 address in IPv6", _networks("::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")),
    ("an IPv6 link-local address, which needs a zone", _networks("fe80::/10", "fec0::/10")),
    (
        "a documentation address",
        _networks("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    ),
    ("a reserved address", _networks("192.0.0.0/24", "192.88.99.0/24", "240.0.0.0/4", "2001::/23")),
)
# Called only if listed.
_LISTED: tuple[tuple[str, tuple[Network, ...]], ...] = (
    ("a loopback address", _networks("127.0.0.0/8", "::1/128")),
    ("a link-local address", _networks("169.254.0.0/16")),
    (
        "a private address",
        _networks("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7"),
    ),
)


def require_address(address: Address, *, is_listed: bool) -> bool:
    """Return whether *address* is public; raise CheckUrlForbidden when it must not be called.

    *is_listed*: an entry of the operator's list names the address.
    """
    for what, networks in _NEVER:
        if any(address in network for network in networks):
            raise CheckUrlForbidden(reason=f"{address} is {what}, and such are never called")
    for what, networks in _LISTED:
        if any(address in network for network in networks):
            if not is_listed:
                raise CheckUrlForbidden(reason=f"{address} is {what} that is not listed by itself")
            return False
    if address.version == 6 and address not in _PUBLIC_IPV6:
        raise CheckUrlForbidden(reason=f"{address} is a reserved address, and such are never called")
    return True


def never_called(network: Network) -> str:
    """Return the kind of all addresses of *network* if they are never called; else ""."""
    for what, networks in _NEVER:
        for each in networks:
            if isinstance(network, IPv4Network) and isinstance(each, IPv4Network) and network.subnet_of(each):
                return what
            if isinstance(network, IPv6Network) and isinstance(each, IPv6Network) and network.subnet_of(each):
                return what
    return ""
