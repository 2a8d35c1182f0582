"""A proxy that asks for credentials, in front of scripted brokers, with principals of the test's choice and a key for each."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from typing import Any

import httpx

from tern_proxy.app import build_app
from tern_proxy.guard import Guard
from tern_proxy.proxy import Proxy
from tern_wire.principals.client_keys import ClientKey, bearer_text, digest_of, root_key_text
from tern_wire.principals.principals import Grant, Principal, PrincipalTable, read_grant
from tests.support.broker.memory_broker import MemoryBroker
from tests.support.proxy.proxy_mesh import KEY, PATIENT_MS, FixedClock, ProxyMesh, ScriptedNameServer, leaders_found

ROOT_KEY = root_key_text(KEY)
MINE, THEIRS = "orders", "invoices"
# Everything of one's own names, and nothing of the cluster.
OWN = ("allow ALL topic orders*", "allow ALL group billing*", "allow ALL producer-group shop*")
OTHER = ("allow ALL topic invoices*", "allow ALL group paying*", "allow ALL producer-group bank*")
LOOKING = (
    *(
        "allow DESCRIBE topic *",
        "allow DESCRIBE group *",
        "allow DESCRIBE producer-group *",
        "allow DESCRIBE cluster *",
    ),
)
EVERYTHING = ("allow ALL topic *", "allow ALL group *", "allow ALL producer-group *", "allow ALL cluster *")


def grant(text: str) -> Grant:
    """The grant that is written like `allow PUB,SUB topic orders*`."""
    effect, actions, kind, pattern = text.split()
    return read_grant(effect, actions.split(","), kind, pattern)


def key_of(name: str, number: int = 0) -> str:
    """The bearer key of the principal *name*: the same in every run."""
    kid = f"{name}{number}".replace("-", "")[:16].ljust(16, "x")
    return bearer_text(kid, name.encode().ljust(32, b"."))


def client_key(text: str, **fields: Any) -> ClientKey:
    """What the table has of that bearer key."""
    return ClientKey(kid=text.split("_")[1], digest=digest_of(text), **fields)


class KnownPrincipals:
    """The table of principals, as the test says it is."""

    def __init__(self) -> None:
        self._table = PrincipalTable()
        self._followers: list[Callable[[], None]] = []
        self.is_ready = self.is_whole = True

    @property
    def table(self) -> PrincipalTable:
        """As the proxy has it now."""
        return self._table

    @table.setter
    def table(self, table: PrincipalTable) -> None:
        self._table = table
        for told in self._followers:
            told()

    def follow(self, told: Callable[[], None]) -> None:
        """As PrincipalsCache.follow."""
        self._followers.append(told)

    def put(self, name: str, grants: Iterable[str] = (), **fields: Any) -> str:
        """A principal with those grants, and its key; *fields* of the Principal, `key` of its ClientKey."""
        text = key_of(name)
        key = client_key(text, **fields.pop("key", {}))
        principal = Principal(name=name, grants=tuple(map(grant, grants)), keys=(key,), **fields)
        self._publish({**self.table.principals, name: principal})
        return text

    def revoke(self, name: str) -> None:
        """Its keys are no keys any more."""
        self._publish({**self.table.principals, name: replace(self.table.principals[name], keys=())})

    def delete(self, name: str) -> None:
        """It is no principal any more."""
        self._publish({each: known for each, known in self.table.principals.items() if each != name})

    def _publish(self, principals: dict[str, Principal]) -> None:
        self.table = PrincipalTable.of(principals.values(), self.table.version + 1)

    def documents(self) -> list[Any]:
        """What brokers keep: nothing, for the routes that show it."""
        return []

    def document(self, name: str) -> None:
        """As documents."""

    def learn(self, *_: Any, **__: Any) -> None:
        """What was written is not kept."""

    async def refresh(self) -> None:
        """It is always new."""

    def start(self) -> None:
        """Nobody is asked."""

    async def stop(self) -> None:
        """Nobody was asked."""


class GuardedMesh(ProxyMesh):
    """As ProxyMesh, with `ask`."""

    guard: Guard
    known: KnownPrincipals
    clock: FixedClock

    async def ask(self, method: str, path: str, key: str = "", **more: Any) -> httpx.Response:
        """One request with that bearer key, "" for none."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return await self.http.request(method, path, headers={**headers, **more.pop("headers", {})}, **more)


@contextlib.asynccontextmanager
async def guarded_mesh(
    topics: Iterable[str] = (MINE, THEIRS), groups: Iterable[str] = ("billing", "paying"), **settings: Any
) -> AsyncIterator[GuardedMesh]:
    """A running proxy that authenticates. Nobody but root has a key yet."""
    broker = MemoryBroker(KEY)
    for topic in topics:
        broker.create_topic(topic, 4)
    for group in groups:
        broker.create_group(group)
    await broker.start()
    name_server, clock, known = ScriptedNameServer([broker]), FixedClock(), KnownPrincipals()
    settings.setdefault("leader_wait_ms", PATIENT_MS)
    proxy = Proxy(
        cluster_key=KEY, cluster="test", name_servers=name_server, clock=clock, authenticates=True, **settings
    )
    proxy.principals = known  # type: ignore[assignment]  # the real one asks brokers; it has tests of its own
    app = build_app(proxy)
    assert isinstance(app.app, Guard), "rights are given to whole names: namespaces come first"
    await proxy.start()
    await leaders_found(proxy, [broker])
    mesh = GuardedMesh(proxy, [broker], name_server, app)
    mesh.guard, mesh.known, mesh.clock = app.app, known, clock
    try:
        yield mesh
    finally:
        await mesh.http.aclose()
        await proxy.stop()
        await broker.stop()
