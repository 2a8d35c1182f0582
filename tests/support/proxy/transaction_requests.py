"""Transactions as the proxy's tests ask for them: begun, ended, and what a problem says."""

from typing import Any

import httpx

from tern_wire.transactions import TransactionIds
from tests.support.broker.contents import declare_producers
from tests.support.proxy.proxy_mesh import KEY, ProxyMesh

BEGIN = "/v1/topics/orders/transactions"
SEVERAL = "/v1/transactions"
IDS = TransactionIds(KEY)


def declare(mesh: ProxyMesh, *names: str) -> None:
    """Producer groups with default settings, in every broker group; without names one: shop."""
    for broker in mesh.brokers:
        declare_producers(broker, names or ("shop",))


async def begin(mesh: ProxyMesh, body: bytes = b"half", **headers: str) -> httpx.Response:
    """One half message of producer group shop."""
    return await mesh.post(BEGIN, body, **{"MQ_Producer_Group": "shop", **headers})


async def begin_several(mesh: ProxyMesh, *messages: dict[str, Any], **fields: Any) -> httpx.Response:
    """Several, in JSON."""
    headers = fields.pop("headers", {})
    document = {"producer_group": "shop", "messages": list(messages), **fields}
    return await mesh.http.post(SEVERAL, json=document, headers=headers)


async def end(mesh: ProxyMesh, transaction_id: str, verb: str, **fields: Any) -> httpx.Response:
    """Commit, roll back or resolve; without fields there is no body."""
    path = f"{SEVERAL}/{transaction_id}/{verb}"
    return await mesh.http.post(path, json=fields) if fields else await mesh.http.post(path)


def code_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a problem."""
    return answer.status_code, answer.json().get("code", "")
