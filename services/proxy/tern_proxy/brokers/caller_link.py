"""Link to a broker group that adds the calling principal to admin requests, without effort of their
senders.

The guard sets the principal of the request that a task handles (`CALLER`);
tern_wire.principals.caller defines its form on the wire.
"""

from tern_proxy.access.authorization import CALLER
from tern_routing import GroupLink
from tern_wire.limits import APPEND_DEADLINE_MS
from tern_wire.link.requests import Parts, RequestCode, body_parts, read_body
from tern_wire.principals.caller import TELLING, CallerSeal


class CallerLink(GroupLink):
    """GroupLink that adds the calling principal."""

    # Set once, before the first request.
    seal: CallerSeal

    async def exchange(
        self,
        code: RequestCode,
        parts: Parts,
        *,
        is_repeatable: bool,
        deadline_ms: int = APPEND_DEADLINE_MS,
        is_prompt: bool = True,
    ) -> bytes | memoryview:
        """Exchange as GroupLink does, with the principal in the heads of admin requests."""
        if code in TELLING and (principal := CALLER.get()):
            head, _ = read_body(bytes(parts[0]))
            parts = [*body_parts(self.seal.put(head, code, principal)), *parts[1:]]
        return await super().exchange(
            code, parts, is_repeatable=is_repeatable, deadline_ms=deadline_ms, is_prompt=is_prompt
        )
