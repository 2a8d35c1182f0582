"""Resolution of names to addresses, by the machine's own resolver in separate threads.

A name server that hangs does not block the event loop, nor other names for ever. Owner of the
threads: this object.

Law: one look-up for a name at a time, shared by concurrent callers; at most THREADS_MAX in all; and
no hanging thread keeps the process from ending.
"""

import asyncio
import socket
import threading
from collections.abc import Callable

# A look-up takes some ms, or the resolver's whole timeout (5 to 30 s) where a zone's servers are
# dead. This many such look-ups do not delay others.
THREADS_MAX = 32


class Resolver:
    """Resolves names.

    *look_up*: a blocking function from a name to its addresses; OSError for none.
    """

    def __init__(self, look_up: Callable[[str], list[str]] | None = None) -> None:
        self._look_up = look_up or _look_up
        self._turns = asyncio.Semaphore(THREADS_MAX)
        self._under_way: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, name: str) -> list[str]:
        """Return every address of *name*, in the resolver's order; OSError when it has none."""
        found = self._under_way.get(name)
        if found is None:
            found = self._under_way[name] = asyncio.ensure_future(self._ask(name))
            found.add_done_callback(lambda _: self._under_way.pop(name, None))
            found.add_done_callback(_note)
        # A caller may time out before the look-up ends; the next caller then joins the same
        # look-up.
        return await asyncio.shield(found)

    async def _ask(self, name: str) -> list[str]:
        loop = asyncio.get_running_loop()
        async with self._turns:
            answer: asyncio.Future[list[str]] = loop.create_future()

            def settle(addresses: list[str], error: OSError | None) -> None:
                if not answer.done():
                    if error is None:
                        answer.set_result(addresses)
                    else:
                        answer.set_exception(error)

            def work() -> None:
                try:
                    outcome: tuple[list[str], OSError | None] = (self._look_up(name), None)
                except OSError as error:
                    outcome = ([], error)
                except UnicodeError as error:
                    outcome = ([], OSError(str(error)))
                if not loop.is_closed():
                    loop.call_soon_threadsafe(settle, *outcome)

            # Not the loop's executor: at its shutdown it waits for its threads, however long they
            # hang.
            threading.Thread(target=work, name="resolver", daemon=True).start()
            return await answer


def _note(future: "asyncio.Future[list[str]]") -> None:
    """Mark the error as retrieved, even if no caller waits for it any more."""
    if not future.cancelled():
        future.exception()


def _look_up(name: str) -> list[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
