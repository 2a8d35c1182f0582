"""Targets and hosts: decoded once, and no two ways to read them."""

import pytest

from tern_service.connections.request_head import is_host, split_target
from tern_wire.errors import RequestMalformed


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", b"/", b""),
        (b"/v1/topics/orders?tag=a%2Fb/../c#"[:-1], b"/v1/topics/orders", b"tag=a%2Fb/../c"),
        (b"/v1/topics/%25RETRY%25a", b"/v1/topics/%25RETRY%25a", b""),
        (b"/v1/queues/broker-a%3A0/", b"/v1/queues/broker-a%3A0/", b""),
        (b"/a?b?c", b"/a", b"b?c"),
        (b"/...a/.b", b"/...a/.b", b""),
        (b"http://Mesh:80/a?b=c", b"/a", b"b=c"),
        (b"HTTP://mesh:80", b"/", b""),
        (b"http://mesh:80?b=c", b"/", b"b=c"),
        (b"/%C3%A9", b"/%C3%A9", b""),
    ],
)
def test_a_target_is_split_and_not_decoded(target: bytes, path: bytes, query: bytes) -> None:
    """The server decodes the path, once."""
    assert split_target(target, b"mesh:80") == (path, query)


@pytest.mark.parametrize(
    "target",
    [
        b"", b"a", b"*", b"mesh:80", b"/a#b", b"/a?b#c", b"http://other/a", b"http://u@mesh:80/a", b"ftp://mesh:80/a", b"http://", b"//mesh/a", b"/a//b", b"/.",
        b"/..", b"/../a", b"/a/../b", b"/a/./b", b"/a/..", b"/%2e%2E/a", b"/a%2fb", b"/a%2Fb", b"/a%5cb", b"/a%00", b"/a%0d%0ab", b"/a%1F", b"/a%7f", b"/%",
        b"/%2", b"/%zz", b"/%u002e", b"/%c0%ae", b"/%ff", b"http://mesh:80/../a",
    ],
)  # fmt: skip
def test_a_target_that_others_read_differently_is_refused(target: bytes) -> None:
    """Another path behind a decoder, a normaliser or a proxy is another resource."""
    with pytest.raises(RequestMalformed):
        split_target(target, b"mesh:80")


def test_hosts() -> None:
    """Names, addresses, ports; nothing else."""
    assert all(
        map(is_host, (b"a", b"a.b-c_d:1", b"127.0.0.1:65535", b"[::1]", b"[fe80::1]:80", b"::1"[:0] + b"localhost"))
    )
    assert not any(
        map(
            is_host,
            (
                b"",
                b"a b",
                b"a/b",
                b"u@a",
                b"a:",
                b"a:x",
                b"a:123456",
                b"[::1",
                b"::1",
                b"[g]",
                b"a,b",
                b"\xff",
                b"a" * 300,
            ),
        )
    )
