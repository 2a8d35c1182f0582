"""Places of open requests: those that came whole and all others do not take each other's."""

from types import SimpleNamespace
from typing import Any

import pytest

from tern_proxy.waiting.open_requests import OpenRequest, OpenRequests
from tern_wire.errors import ShareExceeded
from tern_wire.limits_requests import CALM_SHARE

FOR_EVER_MS = 1 << 60


def places(count: int) -> OpenRequests:
    """Of a proxy without requests."""
    clock: Any = SimpleNamespace(now_ms=lambda: 0)
    principals: Any = SimpleNamespace(follow=lambda _: None)
    nobody: Any = None
    open_ = OpenRequests(principals, nobody, clock, waiting=lambda: 0, claimed=lambda _: 0, places=count)
    open_._whole_places = count
    return open_


def opened(open_: OpenRequests, principal: str, *, is_whole: bool) -> OpenRequest:
    """Return one more open request."""
    access = SimpleNamespace(principal=SimpleNamespace(name=principal))
    session: Any = SimpleNamespace(access=access, until_ms=FOR_EVER_MS)
    nothing: Any = None
    admission: Any = SimpleNamespace(rule=SimpleNamespace(is_stream=False))
    request = OpenRequest(session, admission, {}, nothing, nothing, nothing, is_whole=is_whole)
    open_.enter(request)
    return request


def taken(open_: OpenRequests, principal: str, *, is_whole: bool) -> list[OpenRequest]:
    """Open requests of *principal* until its share is used up."""
    found: list[OpenRequest] = []
    while True:
        try:
            open_.require_place(principal, is_whole=is_whole)
        except ShareExceeded:
            return found
        found.append(opened(open_, principal, is_whole=is_whole))
        assert len(found) < 1_000


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_share_of_one_kind_leaves_the_other_kind_free(is_whole: bool) -> None:
    """Two thirds for one who is alone, also of the other kind; a newcomer finds room; places come back."""
    open_ = places(60)
    first = taken(open_, "a", is_whole=is_whole)
    assert len(first) == 40
    assert len(taken(open_, "a", is_whole=not is_whole)) == 40
    open_.require_place("b", is_whole=is_whole)
    open_.require_place("b", is_whole=not is_whole)
    for request in first:
        open_.leave(request)
    assert len(open_) == 40
    for _ in range(60 // CALM_SHARE - 1):
        open_.require_place("a", is_whole=is_whole)
        opened(open_, "a", is_whole=is_whole)
