"""Connections by address: bounded, counted down, and forgotten."""

import pytest

from tern_service.crowd import Crowd, address_of


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", ""),
        ("127.9.9.9", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("unix", ""),
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_address_is_what_one_host_has(host: str, address: str) -> None:
    """Loopback is none; of IPv6 one host has 64 bits."""
    assert address_of(host) == address


def test_an_address_has_a_limit_and_others_have_theirs() -> None:
    """The third is one too many until one goes."""
    crowd = Crowd()
    assert crowd.enter("192.0.2.1", 2) == crowd.enter("192.0.2.1", 2) == "192.0.2.1"
    assert crowd.enter("192.0.2.1", 2) is None
    assert crowd.enter("192.0.2.2", 2) == "192.0.2.2"
    crowd.leave("192.0.2.1")
    assert crowd.enter("192.0.2.1", 2) == "192.0.2.1"
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        crowd.leave(address)
    assert len(crowd) == 0


def test_loopback_has_none() -> None:
    """And nothing is kept for it."""
    crowd = Crowd()
    assert [crowd.enter("127.0.0.1", 1) for _ in range(3)] == ["", "", ""]
    assert len(crowd) == 0
