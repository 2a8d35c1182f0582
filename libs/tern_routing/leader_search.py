"""STATUS requests to the nodes of one broker group, to find its leader and for display.

Owner of the tasks: this object, in its event loop. Each answer about a leader goes to *serves* at
once, so a hanging node delays none of the others.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from tern_remoting import Link, LinkError
from tern_wire.errors import TernError
from tern_wire.link.heads import head_parts, read_head
from tern_wire.link.requests import ERROR, read_body
from tern_wire.link.status import GetStatus, NodeStatus

# A healthy node answers STATUS within ms, a starved one within tens of ms; slower ones do not lead.
STATUS_TIMEOUT_S = 0.3
# A node's STATUS, and the body that it came in, which has more.
Heard = tuple[NodeStatus, bytes | memoryview]
# Pause between rounds: the search only finds leaders without a notice, and an election takes
# longer.
SEARCH_INTERVAL_S = 0.05


class LeaderSearch:
    """Two kinds of requests: until a leader is found, and once."""

    def __init__(
        self,
        *,
        links: Callable[[], dict[str, Link]],
        serves: Callable[[str, int], None],
        in_vain: Callable[[dict[str, NodeStatus]], None],
        is_over: Callable[[], bool],
        is_wanted: Callable[[], bool],
    ) -> None:
        """*links*: nodes whose links are up. *serves* receives each serving node with its term.
        *in_vain* receives each round's statuses by node while there is no leader. *is_over*: a
        leader is known and linked. *is_wanted*: requests wait for one.
        """
        self._links, self._serves, self._in_vain = links, serves, in_vain
        self._is_over, self._is_wanted = is_over, is_wanted
        self._search: asyncio.Task[None] | None = None
        self._inquiry: asyncio.Task[object] | None = None

    def start(self) -> bool:
        """Search until there is a leader or no request waits; False if a search is under way."""
        if self._search is not None and not self._search.done():
            return False
        self._search = asyncio.create_task(self._ask_until_found())
        return True

    def ask_around(self) -> None:
        """Send STATUS to all nodes once: if no other node serves, the leader is only slow."""
        if self._inquiry is None or self._inquiry.done():
            self._inquiry = asyncio.create_task(self.statuses())

    async def statuses(self) -> dict[str, dict[str, Any]]:
        """Every linked node's own status, for display; {} without an answer in STATUS_TIMEOUT_S."""
        links = self._links()
        answers = await asyncio.gather(*(self._ask(name, link) for name, link in links.items()))
        return {
            name: read_body(answer[1])[0] if answer is not None else {}
            for name, answer in zip(links, answers, strict=True)
        }

    def close(self) -> None:
        """Cancel the search."""
        for task in (self._search, self._inquiry):
            if task is not None:
                task.cancel()

    async def _ask_until_found(self) -> None:
        """Repeat rounds; waiters are checked after the pause, since a woken one may wait again."""
        asking: dict[str, asyncio.Task[Heard | None]] = {}
        try:
            while not self._is_over():
                # A hanging node has one request at a time.
                asking = {name: task for name, task in asking.items() if not task.done()}
                fresh = {
                    name: asyncio.create_task(self._ask(name, link))
                    for name, link in self._links().items()
                    if name not in asking
                }
                asking |= fresh
                await asyncio.sleep(SEARCH_INTERVAL_S)
                heard = {name: task.result() for name, task in fresh.items() if task.done()}
                self._in_vain({name: answer[0] for name, answer in heard.items() if answer is not None})
                if not self._is_wanted():
                    return
        finally:
            for task in asking.values():
                task.cancel()

    async def _ask(self, name: str, link: Link) -> Heard | None:
        try:
            frame = await link.request(GetStatus.code, head_parts(GetStatus()), timeout_s=STATUS_TIMEOUT_S)
            if frame.code == ERROR:
                return None
            status, _ = read_head(NodeStatus, frame.body)
        except (LinkError, TernError):
            return None
        if status.is_serving:
            self._serves(name, status.term)
        return status, frame.body
