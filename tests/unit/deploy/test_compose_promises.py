"""The acceptance of the deployment finds what it looks for: lost and doubled messages, secrets, doors that stand open."""

import io
from collections import Counter
from typing import Any

import pytest

from tests.compose.client import Answer, Client
from tests.compose.engine import Container
from tests.compose.hygiene import check_doors, hits, secrets_in
from tests.compose.load import Load, compare


def load_with(acked: int) -> Load:
    """A load of one sender that was promised *acked* messages."""
    load = Load("topic", lambda: Client((1,), "", ""), name="x", senders=1)
    load.senders[0].acked = acked
    return load


def test_a_promise_that_is_kept_passes() -> None:
    """Beside what was under way when the senders stopped."""
    compare([load_with(2)], Counter(["x-0-0", "x-0-1", "x-0-2"]))


@pytest.mark.parametrize(
    ("stored", "complaint"), [(["x-0-1"], "are lost"), (["x-0-0", "x-0-1", "x-0-1"], "stored twice")]
)
def test_a_message_that_is_lost_or_doubled_is_a_failure(stored: list[str], complaint: str) -> None:
    """Of those that were acknowledged."""
    with pytest.raises(AssertionError, match=complaint):
        compare([load_with(2)], Counter(stored))


def test_a_sender_that_was_refused_for_good_is_a_failure() -> None:
    """Otherwise a load that stopped at its first message would promise nothing and pass."""
    load = load_with(0)
    load.senders[0].refused = str(Answer(403, {}))
    with pytest.raises(AssertionError, match="refused"):
        compare([load], Counter())


def test_the_longest_pause_counts_both_ends() -> None:
    """An outage at the beginning or at the end is one too."""
    load = load_with(0)
    load.senders[0].accepted_at = [10.5, 11.0, 14.0]
    assert load.longest_pause_s(10.0, 14.5) == 3.0
    assert load.longest_pause_s(10.0, 20.0) == 6.0


# In pieces, so that this file holds none.
KEY = "mqk_" + "A" * 16 + "_" + "b" * 43
PEM = "-----BEGIN " + "PRIVATE KEY-----"


@pytest.mark.parametrize("text", [KEY, PEM, "a known one", "mqs_" + KEY[4:]])
def test_secrets_are_found_by_their_looks_and_by_their_text(text: str) -> None:
    """And told without telling them."""
    found = secrets_in(f"argv: --key {text} ...", ["a known one"])
    assert len(found) == 1 and found[0].endswith("...") and len(found[0]) <= 15


def test_a_secret_across_two_blocks_of_a_file_is_found() -> None:
    """Files of layers are read a mebibyte at a time."""
    content = io.BytesIO(b"x" * ((1 << 20) - 20) + KEY.encode() + b"y" * 100)
    assert list(hits("opt/some-file", content, [])) == [KEY.encode()]


def container(service: str, **host: Any) -> Container:
    """One as the engine describes it."""
    published = {"8443/tcp": [{"HostIp": "127.0.0.1"}]} if service.startswith("proxy") else {}
    document = {
        "NetworkSettings": {"Ports": published | host.pop("Ports", {})},
        "HostConfig": {"ReadonlyRootfs": True, "CapDrop": ["ALL"], "Memory": 1, "PidsLimit": 1} | host,
    }
    return Container(id="", service=service, pid=2, is_running=True, health="", restarts=0, document=document)


def test_closed_containers_pass() -> None:
    """The proxies on loopback, nobody else anywhere."""
    check_doors([container("proxy-0"), container("broker-a-0")])


@pytest.mark.parametrize(
    "bad",
    [
        container("broker-a-0", Ports={"10911/tcp": [{"HostIp": "127.0.0.1"}]}),
        container("proxy-0", Ports={"8443/tcp": [{"HostIp": "0.0.0.0"}]}),
        container("namesrv-0", ReadonlyRootfs=False),
        container("namesrv-0", CapDrop=[]),
        container("namesrv-0", Memory=0),
    ],
)
def test_an_open_door_or_a_right_too_many_is_a_failure(bad: Container) -> None:
    """Whichever it is."""
    with pytest.raises(AssertionError):
        check_doors([bad])
