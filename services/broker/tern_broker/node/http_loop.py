"""The broker's second loop: FastAPI and heartbeats on a separate thread, so that the core never
waits for either.
"""

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from tern_broker.config import BrokerConfig
from tern_broker.node.node_tls import NO_TLS, NodeTls
from tern_broker.node.rebuild_offer import RebuildOffer
from tern_raft import EXIT_BROKEN

if TYPE_CHECKING:
    from tern_broker.node.heartbeat import Described
    from tern_broker.routes import RebuildRoutes

log = logging.getLogger(__name__)
T = TypeVar("T")


class HttpLoop:
    """Owner: the core loop, which starts and stops it. All its requests to the core run there, each
    in one turn.
    """

    def __init__(
        self,
        config: BrokerConfig,
        sock: socket.socket,
        *,
        status: Callable[[], dict[str, Any]],
        trim: Callable[[], dict[str, Any]],
        transfer: Callable[[str], dict[str, Any]] | None = None,
        choose: Callable[[str], dict[str, Any]] | None = None,
        pass_over: Callable[[int, bool], dict[str, Any]] | None = None,
        registration: "Callable[[], Described] | None",
        rebuild: RebuildOffer | None = None,
        mark: Callable[[], None] = lambda: None,
        tls: NodeTls = NO_TLS,
    ) -> None:
        """*registration* None: name servers are not used; *transfer*, *choose*, *pass_over* None:
        the node has no group.

        *rebuild*: what other nodes of the group may copy; None: nothing. *mark* is called in the
        core before each request.
        """
        self._config, self._sock, self._tls = config, sock, tls
        self._status, self._trim, self._transfer, self._registration = status, trim, transfer, registration
        self._rebuild, self._mark, self._choose, self._pass_over = rebuild, mark, choose, pass_over
        self._core = asyncio.get_running_loop()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_stopping = False
        self._changed: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._work, name="http", daemon=True)

    def start(self) -> None:
        """Start the thread; its imports (FastAPI) overlap with the core's first election."""
        self._thread.start()

    def stop(self) -> None:
        """Unregister and stop serving; return when the thread has ended or after 5 s."""
        # A thread that is still importing sees this when its loop begins.
        self._is_stopping = True
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=5)

    def changed(self) -> None:
        """Notify the loop that role, term or topics changed. Called by the core."""
        if self._loop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._changed)

    def _work(self) -> None:
        from tern_broker.app import create_app  # noqa: PLC0415 (FastAPI costs 0.4 s: not on the core's path)
        from tern_broker.node.heartbeat import Heartbeat  # noqa: PLC0415
        from tern_service import serve  # noqa: PLC0415

        async def main() -> None:
            self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
            if self._is_stopping:
                self._sock.close()
                return
            transfer, choose, pass_over = self._transfer, self._choose, self._pass_over
            app = create_app(
                self._config,
                ask_status=lambda: self._ask(self._status),
                ask_trim=lambda: self._ask(self._trim),
                rebuild=self._rebuild_door(),
                ask_transfer=None if transfer is None else lambda to: self._ask(lambda: transfer(to)),
                ask_choose=None if choose is None else lambda node: self._ask(lambda: choose(node)),
                ask_pass_over=None if pass_over is None else lambda *asked: self._ask(lambda: pass_over(*asked)),
                security=self._tls.security,
            )
            tls, refused = self._tls.http_listener, self._tls.security.refused
            work = [serve(app, self._sock, stop=self._stop, tls=tls, on_refusal=refused)]
            if (registration := self._registration) is not None:
                heartbeat = Heartbeat(self._config, lambda: self._ask(registration), self._tls.name_servers)
                self._changed = heartbeat.changed
                work.append(heartbeat.run(self._stop))
            await asyncio.gather(*work)

        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except (Exception, SystemExit):
            # A node that does not register would lead without being found. SystemExit means that
            # the server cannot start.
            log.critical("the HTTP loop failed; the process ends", exc_info=True)
            os._exit(EXIT_BROKEN)

    def _rebuild_door(self) -> "RebuildRoutes | None":
        from tern_broker.routes import RebuildRoutes  # noqa: PLC0415 (as in _work)

        offer = self._rebuild
        if offer is None:
            return None
        ask = lambda: self._ask(offer.manifest)  # noqa: E731 (one line for one thought)
        return RebuildRoutes(self._config, key=offer.key, ask_manifest=ask, read=offer.read)

    def _ask(self, question: Callable[[], T]) -> "asyncio.Future[T]":
        """Run *question* in the core loop; return a future of this loop."""

        async def answer() -> T:
            self._mark()
            return question()

        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(answer(), self._core))
