"""The blocking half of the SDK: what is made of the async source, and that a difference is told."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tern_client
from tests.support.client import blocking_half
from tests.support.client.blocking_half import BLOCKING, blocking_names, blocking_text, found_half, main

SOURCE = '''
from tern_client.asynchronous.client import AsyncClient
from tern_client.transport.transport import Transport

class Admin(AsyncClient):
    """May be shared between tasks; a redrive is a task.

    Example:

        import asyncio

        from tern_client import Admin, OutgoingMessage, Producer


        async def main() -> None:
            async with Admin("http://127.0.0.1:8080") as admin:
                print(await admin.topics())


        asyncio.run(main())
    """

    __slots__ = ("_caller", "_closing")

    async def records(self) -> AsyncIterator[Page]:
        async with self as admin:
            async for page in admin._pages(await self._call()):
                yield page

    async def __aenter__(self) -> Self: ...
'''
MADE = '''
from tern_client.blocking.client import BlockingClient
from tern_client.transport.blocking_transport import BlockingTransport

class BlockingAdmin(BlockingClient):
    """May be shared between threads; a redrive is a task.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer, OutgoingMessage


        def main() -> None:
            with BlockingAdmin("http://127.0.0.1:8080") as admin:
                print(admin.topics())


        main()
    """


    def records(self) -> Iterator[Page]:
        with self as admin:
            for page in admin._pages(self._call()):
                yield page

    def __enter__(self) -> Self: ...
'''
# Of async clients alone: coroutine functions or the gathering of messages need them.
ASYNC_ONLY = {"send_soon", "flush"}
TWINS = ["Admin", "Consumer", "Membership", "Producer", "PullConsumer", "TransactionProducer"]


def test_words_of_asyncio_become_words_of_threads() -> None:
    """Awaits go, classes and modules have their other names, docstrings speak of threads."""
    assert blocking_text(SOURCE, blocking_names()) == MADE


def test_every_class_of_the_async_half_has_a_name_in_the_blocking_one() -> None:
    """The base class and the plain producer lose their first word."""
    names = blocking_names()
    assert names["AsyncClient"] == "BlockingClient"
    assert names["PlainProducer"] == "BlockingProducer"
    assert names["TopicCalls"] == "BlockingTopicCalls"
    assert names["Transport"] == "BlockingTransport"


def public_methods(kind: type) -> Iterator[tuple[str, inspect.Signature]]:
    """What a user may call of *kind*."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            yield name, inspect.signature(method)


@pytest.mark.parametrize("name", TWINS)
def test_both_shells_have_the_same_methods_with_the_same_parameters(name: str) -> None:
    """Those by hand, too: whoever knows one shell knows the other."""
    kind, twin = getattr(tern_client, name), getattr(tern_client, f"Blocking{name}")
    blocking = dict(public_methods(twin))
    for method, signature in public_methods(kind):
        if method not in ASYNC_ONLY:
            given = [(each.name, each.kind, each.default) for each in signature.parameters.values()]
            there = [(each.name, each.kind, each.default) for each in blocking[method].parameters.values()]
            assert given == there, method


@pytest.mark.parametrize("trouble", ["changed", "missing", "surplus"])
def test_a_half_that_differs_fails_the_check_and_is_named(
    trouble: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that was changed by hand, one that was not made, and one whose source is gone."""
    path = BLOCKING / ("topics.py" if trouble != "surplus" else "gone.py")

    def found() -> dict[Path, str]:
        files = found_half()
        if trouble == "missing":
            del files[path]
        else:
            files[path] = "changed by hand\n"
        return files

    monkeypatch.setattr(blocking_half, "found_half", found)
    monkeypatch.setattr(sys, "argv", ["blocking_half", "--check"])
    assert main() == 1
    told = capsys.readouterr().out
    assert str(path.relative_to(blocking_half.ROOT)) in told
    assert len(told.splitlines()) == 1
