"""What a scripted broker says of principals: the real part of the state machine decides, without a log."""

from collections.abc import Callable
from typing import Any

from tern_broker.core.applied import Applied
from tern_broker.core.principals import Principals
from tern_wire.link.codec import encode_msgpack
from tern_wire.link.commands import CommandKind
from tern_wire.link.requests import RequestCode

Answer = tuple[dict[str, Any], bytes]


class ScriptedPrincipals:
    """`part`: what a broker would have in its state. `now_ms`: the time of the log."""

    def __init__(self) -> None:
        self.part = Principals()
        self.now_ms = 1_700_000_000_000

    def handlers(self) -> dict[RequestCode, Callable[[dict[str, Any], memoryview], Answer]]:
        """What it answers."""
        return {RequestCode.PUT_PRINCIPAL: self.put, RequestCode.LIST_PRINCIPALS: self.list_changed}

    def put(self, head: dict[str, Any], _: memoryview) -> Answer:
        """PUT_PRINCIPAL."""
        payload = memoryview(encode_msgpack(head))
        verdict = self.part.commands()[CommandKind.PUT_PRINCIPAL](payload, 0, Applied(now_ms=self.now_ms))
        assert isinstance(verdict, dict)
        return verdict, b""

    def list_changed(self, head: dict[str, Any], _: memoryview) -> Answer:
        """LIST_PRINCIPALS."""
        return self.part.changed_after(head["after"], head["limit"]), b""
