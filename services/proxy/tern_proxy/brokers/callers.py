"""Calling principal in the heads of admin requests, without effort of their senders.

The guard sets the principal of the request that a task handles (`CALLER`);
tern_wire.principals.caller defines its form on the wire.
"""

from tern_proxy.access.authorization import CALLER
from tern_routing.group_link import Addition
from tern_wire.link.requests import Parts, RequestCode, body_parts, read_body
from tern_wire.principals.caller import TELLING, CallerSeal


def caller_additions(cluster_key: bytes) -> dict[RequestCode, Addition]:
    """Return by request code what adds the calling principal to a head."""
    seal = CallerSeal(cluster_key)

    def addition(code: RequestCode) -> Addition:
        def add(parts: Parts) -> Parts:
            principal = CALLER.get()
            if not principal:
                return parts
            head, _ = read_body(bytes(parts[0]))
            return [*body_parts(seal.put(head, code, principal)), *parts[1:]]

        return add

    return {code: addition(code) for code in TELLING}
