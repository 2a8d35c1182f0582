"""The calling principal in what a proxy asks its brokers: in admin requests, sealed, and in nothing else."""

import pytest

from tern_wire.link.requests import RequestCode
from tern_wire.principals.caller import FIELD, TELLING, CallerSeal
from tests.support.proxy.guarded_mesh import EVERYTHING, guarded_mesh
from tests.support.proxy.proxy_mesh import KEY, proxy_mesh

pytestmark = pytest.mark.anyio


async def test_an_admin_request_tells_its_principal_and_others_tell_none() -> None:
    """The broker can verify who it was; sends, receives and descriptions travel without a name."""
    async with guarded_mesh() as mesh:
        app = mesh.known.put("app", EVERYTHING)
        assert (await mesh.ask("PATCH", "/v1/topics/orders", app, json={"queues": 5})).status_code == 200
        assert (await mesh.ask("POST", "/v1/topics/orders/messages", app, content=b"x")).status_code == 201
        assert (await mesh.ask("POST", "/v1/topics/orders/groups/billing/receive", app)).status_code == 200
        assert (await mesh.ask("GET", "/v1/groups/billing", app)).status_code == 200
        heads = list(mesh.broker.heads)
    (changed,) = [head for code, head in heads if code == RequestCode.CREATE_TOPIC]
    assert CallerSeal(KEY).take(dict(changed), RequestCode.CREATE_TOPIC) == "app"
    others = [(code, head) for code, head in heads if code not in TELLING]
    assert {RequestCode.SEND, RequestCode.RECEIVE} <= {code for code, _ in others}
    assert not any(FIELD in head for _, head in others)


async def test_without_credentials_nobody_is_told() -> None:
    """An admin request of an open mesh names no principal."""
    async with proxy_mesh() as mesh:
        assert (await mesh.http.patch("/v1/topics/orders", json={"queues": 5})).status_code == 200
        assert not any(FIELD in head for _, head in mesh.broker.heads)
