"""Where a broker says that it is."""

from pathlib import Path
from typing import Any

import pytest

from tern_broker.config import BrokerConfig

REQUIRED: dict[str, Any] = {
    "peers": ("broker-a-0=broker-a-0:10912",),
    "data_dir": Path("d"),
    "cluster_key_file": Path("k"),
    "group_id": "0" * 32,
}


@pytest.mark.parametrize(
    ("settings", "address"),
    [
        ({}, "127.0.0.1:10911"),
        ({"listen": "::1"}, "[::1]:10911"),
        ({"listen": "0.0.0.0", "advertise": "broker-a-0"}, "broker-a-0:10911"),
        ({"listen": "::", "advertise": "fd00::1"}, "[fd00::1]:10911"),
        ({"listen": "10.0.0.1", "advertise": "mq.example.com"}, "mq.example.com:10911"),
        ({"listen": "10.0.0.1"}, "10.0.0.1:10911"),
    ],
)
def test_others_are_told_the_advertised_host_or_the_one_it_listens_on(settings: dict[str, Any], address: str) -> None:
    """As host:port that a dialler can split."""
    config = BrokerConfig(**REQUIRED, **settings)
    assert config.address(config.link_port) == address


@pytest.mark.parametrize(
    "settings",
    [
        {"listen": "0.0.0.0"},
        {"listen": "::"},
        {"listen": "[::]"},
        {"listen": "0.0.0.0", "advertise": "0.0.0.0"},
        {"advertise": "a b"},
        {"advertise": "http://a"},
    ],
)
def test_an_address_that_nobody_can_reach_is_refused(settings: dict[str, Any]) -> None:
    """Proxies would dial themselves."""
    with pytest.raises(ValueError, match="--advertise"):
        BrokerConfig(**REQUIRED, **settings)
