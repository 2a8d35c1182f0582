"""The name in a certificate, read and refused."""

import pytest

from tern_security.peer_identity import ROLES, PeerIdentity, identity_of, read_identity


@pytest.mark.parametrize("role", sorted(ROLES))
def test_an_identity_survives_its_uri(role: str) -> None:
    """What is written into a certificate is what is read from it."""
    identity = PeerIdentity(cluster="shop", role=role, name="broker-a-0")
    assert identity.uri == f"mq://shop/{role}/broker-a-0"
    assert read_identity(identity.uri) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "mq://shop/broker",
        "mq://shop/broker/a/b",
        "https://shop/broker/a",
        "mq://shop/king/a",
        "mq:///broker/a",
        "mq://shop/broker/",
        "mq://shop/broker/..",
        "mq://shop/broker/a b",
        "MQ://shop/broker/a",
        "mq://shop/broker/" + "a" * 128,
    ],
)
def test_what_is_no_identity_is_refused(uri: str) -> None:
    """A certificate with another URI is not half of an identity."""
    with pytest.raises(ValueError):
        read_identity(uri)


@pytest.mark.parametrize(
    "names",
    [
        (),
        (("DNS", "broker-a-0"),),
        (("URI", "mq://shop/broker/a"), ("URI", "mq://shop/proxy/a")),
    ],
)
def test_a_certificate_has_exactly_one_uri(names: tuple[tuple[str, str], ...]) -> None:
    """With two, which of them is meant would be the reader's choice."""
    with pytest.raises(ValueError):
        identity_of({"subjectAltName": names})


def test_only_the_client_called_operator_is_one() -> None:
    """A scraper's certificate, and a broker of that name, may look only."""
    assert PeerIdentity(cluster="c", role="client", name="operator").is_operator
    assert not PeerIdentity(cluster="c", role="client", name="scraper").is_operator
    assert not PeerIdentity(cluster="c", role="broker", name="operator").is_operator
