"""Waits for replies at a scripted broker: found among the records of its reply topic, or when one is stored there."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tern_remoting import Link
from tern_wire.errors import TernError, TopicNotFound
from tern_wire.link.requests import ERROR, body_parts, error_parts
from tern_wire.records.properties import CORRELATION_ID, MESSAGE_TYPE, REPLY_TO
from tern_wire.records.read import decode_record
from tern_wire.replies import REPLY

# Link, opaque, head, and what ends the wait at its deadline.
Wait = tuple[Link, int, dict[str, Any], asyncio.TimerHandle]


class ScriptedReplies:
    """*topics*: name -> (id, logs), the broker's, which grow."""

    def __init__(self, topics: Mapping[str, tuple[int, list[list[bytes]]]]) -> None:
        self._topics = topics
        self._waits: list[Wait] = []

    def __len__(self) -> int:
        return len(self._waits)

    def wait(self, link: Link, opaque: int, head: dict[str, Any]) -> None:
        """AWAIT_REPLY: answered now, at the reply, or at the deadline; TopicNotFound."""
        if head["topic"] not in self._topics:
            raise TopicNotFound(topic=head["topic"])

        def late() -> None:
            self._waits.remove(wait)
            link.reply(opaque, 0, body_parts({"found": False}))

        timer = asyncio.get_running_loop().call_later(head["wait_ms"] / 1_000, late)
        wait = (link, opaque, head, timer)
        self._waits.append(wait)
        self.wake()

    def wake(self) -> None:
        """Something was stored."""
        for wait in list(self._waits):
            link, opaque, head, timer = wait
            record = self._find(head)
            if record:
                self._waits.remove(wait)
                timer.cancel()
                link.reply(opaque, 0, body_parts({"found": True}, [record]))

    def refuse(self, error: TernError) -> None:
        """Not the leader any more."""
        for link, opaque, _, timer in self._waits:
            timer.cancel()
            link.reply(opaque, ERROR, error_parts(error))
        self._waits.clear()

    def _find(self, head: dict[str, Any]) -> bytes:
        wanted = {CORRELATION_ID: head["correlation_id"], REPLY_TO: head["reply_to"], MESSAGE_TYPE: REPLY}
        for log in self._topics.get(head["topic"], (0, []))[1]:
            for record in log:
                if wanted.items() <= decode_record(record).properties.items():
                    return record
        return b""
