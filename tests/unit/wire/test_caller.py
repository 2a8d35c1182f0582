"""The principal in the head of a link request: sealed for one request, and nobody else's."""

from typing import Any

import pytest

from tern_wire.errors import LinkBodyMalformed
from tern_wire.link.codec import decode_msgpack, encode_msgpack
from tern_wire.link.requests import RequestCode
from tern_wire.principals.caller import CallerSeal

SEAL = CallerSeal(bytes(range(32)))
HEAD: dict[str, Any] = {"topic": "orders", "mode": "alter", "settings": {"queues": 8, "ratio": 1.5}, "raw": b"\x00"}


def travelled(head: dict[str, Any]) -> dict[str, Any]:
    """*head* as a broker gets it."""
    found: dict[str, Any] = decode_msgpack(encode_msgpack(head))
    return found


def test_a_principal_arrives_and_leaves_the_head_as_it_was() -> None:
    """What follows reads the request as if nobody had been named."""
    head = travelled(SEAL.put(HEAD, RequestCode.CREATE_TOPIC, "app"))
    assert SEAL.take(head, RequestCode.CREATE_TOPIC) == "app"
    assert head == HEAD


def test_a_request_without_a_principal_is_nobodys() -> None:
    """As of a mesh that asks for no credentials."""
    assert SEAL.take(dict(HEAD), RequestCode.CREATE_TOPIC) == ""


MAC = SEAL.put(HEAD, RequestCode.CREATE_TOPIC, "app")["principal"][1]


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": "invoices"},
        {"principal": ["root", MAC]},
        {"principal": ["app", bytes(16)]},
        {"principal": ["app"]},
        {"principal": "app"},
        {"principal": ["a" * 65, MAC]},
    ],
    ids=str,
)
def test_another_request_or_principal_has_no_seal(changed: dict[str, Any]) -> None:
    """Not for another topic, not for somebody else, not for any shape of it."""
    head = travelled(SEAL.put(HEAD, RequestCode.CREATE_TOPIC, "app") | changed)
    with pytest.raises(LinkBodyMalformed):
        SEAL.take(head, RequestCode.CREATE_TOPIC)


def test_another_code_or_another_cluster_has_no_seal() -> None:
    """A create is no delete, and a key is one cluster's."""
    for seal, code in ((SEAL, RequestCode.DELETE_TOPIC), (CallerSeal(bytes(32)), RequestCode.CREATE_TOPIC)):
        head = travelled(SEAL.put(HEAD, RequestCode.CREATE_TOPIC, "app"))
        with pytest.raises(LinkBodyMalformed):
            seal.take(head, code)
