"""Items read ahead: in order, within their bound, errors after the items before them, and an end that waits for nobody."""

import threading
from collections.abc import Iterator
from socket import create_server

import pytest

from tern_spark import ProxyPages
from tern_spark.read_ahead import ReadAhead
from tern_wire.errors import OffsetExpired


def never() -> None:
    """An abort that is not expected."""
    raise AssertionError("aborted")


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_items_come_in_order_and_never_more_than_depth_ahead(depth: int) -> None:
    """The source looks, before it makes an item, at how many of those before it were not taken."""
    taken = [0]
    ahead: list[int] = []

    def source() -> Iterator[int]:
        for number in range(200):
            ahead.append(number + 1 - taken[0])
            yield number

    found = []
    with ReadAhead(source(), depth, never) as items:
        for item in items:
            taken[0] += 1
            found.append(item)
    assert found == list(range(200))
    # An item leaves the queue a moment before it is counted as taken.
    assert max(ahead) <= depth + 1


def test_an_error_comes_behind_the_items_before_it() -> None:
    """The very error, in the caller's thread."""

    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise OffsetExpired(offset=2, min_offset=4)

    found = []
    with pytest.raises(OffsetExpired) as failure, ReadAhead(source(), 4, never) as items:
        for item in items:
            found.append(item)
    assert (found, failure.value.fields["min_offset"]) == ([1, 2], 4)


def test_a_caller_that_leaves_aborts_the_read_under_way() -> None:
    """The source waits for what never comes; the end of the caller's block makes it fail, and the thread is over."""
    begun, freed = threading.Event(), threading.Event()

    def source() -> Iterator[int]:
        yield 1
        begun.set()
        assert freed.wait(30)
        raise ConnectionError("aborted")

    with ReadAhead(source(), 2, freed.set) as items:
        assert next(iter(items)) == 1
        assert begun.wait(30)
    assert freed.is_set()
    assert "ternmq-read-ahead" not in {thread.name for thread in threading.enumerate()}


def test_a_thread_that_waits_for_room_ends_with_its_caller() -> None:
    """The source has more than is taken."""
    with ReadAhead(iter(range(1, 1_000)), 2, lambda: None) as items:
        assert next(iter(items)) == 1
    assert "ternmq-read-ahead" not in {thread.name for thread in threading.enumerate()}


def test_an_aborted_page_fails_at_once_and_is_not_repeated() -> None:
    """A proxy that never answers; its reader has a minute of patience and many repeats."""
    errors: list[BaseException] = []
    with create_server(("127.0.0.1", 0)) as server:
        pages = ProxyPages(
            [f"http://127.0.0.1:{server.getsockname()[1]}"], timeout_ms=60_000, retries=50, retry_interval_ms=60_000
        )

        def fetch() -> None:
            try:
                pages.page("orders", "broker-a:0", 0, 9, 1 << 20)
            except OSError as error:
                errors.append(error)

        thread = threading.Thread(target=fetch)
        thread.start()
        connection, _ = server.accept()
        with connection:
            assert connection.recv(4_096).startswith(b"GET ")
            pages.abort()
            thread.join(30)
        assert not thread.is_alive()
        with pytest.raises(ConnectionAbortedError):
            pages.page("orders", "broker-a:0", 0, 9, 1 << 20)
    assert len(errors) == 1
    assert ", 0 repeats before" in errors[0].__notes__[0]
