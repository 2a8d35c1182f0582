"""What must hold of a deployment that is up: one function a promise, each leaving the mesh as it found it. Figures go into a dictionary.

Run by `__main__.py` in this order; an AssertionError says which promise is broken.
"""

import base64
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tern_wire import paths
from tests.compose import hygiene
from tests.compose.client import Client
from tests.compose.engine import PORTS, Container, Engine, eventually
from tests.compose.load import Load, compare, stored_bodies

# What the load fills, what is sent and received by hand, and what is somebody else's.
TOPIC, HELLO, OTHER_TOPIC = "acceptance", "acceptance-hello", "foreign"
GROUP, PRODUCERS = "acceptance-readers", "acceptance-shop"
QUEUES = 4
# What the leader's container away from the network may cost.
GAP_MAX_S = 3.0
# Under a load on two slow cores: Python starts, a log is opened, a group is joined, and the health check looks every 10 s.
HEALTHY_WITHIN_S = 90.0
SETTLED_S = 2.0
SERVICES_KILLED = (
    *("namesrv-0", "namesrv-1", "broker-a-0", "broker-a-1", "broker-a-2"),
    *("proxy-0", "proxy-1", "checker-0", "checker-1"),
)


@dataclass(slots=True, kw_only=True)
class Run:
    """One acceptance: the deployment, its keys, every load that was promised something, and what was measured."""

    engine: Engine
    authority: str
    root_key: str
    app_key: str = ""
    narrow_key: str = ""
    known_secrets: list[str] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def client(self, key: str | None = None, *, timeout_s: float = 15.0) -> Client:
        """A client with *key*, by default that of the application."""
        return Client(PORTS, self.authority, self.app_key if key is None else key, timeout_s=timeout_s)

    @contextmanager
    def load(self, name: str) -> Iterator[Load]:
        """Senders under way from the first receipt on; their promises are compared for as long as the deployment lives."""
        load = Load(TOPIC, partial(self.client, timeout_s=1.0), name=f"{name}-{secrets.token_hex(3)}")
        self.loads.append(load)
        with load:
            began_s = time.monotonic()
            eventually(lambda: load.accepted_after(began_s), within_s=30, what="a first receipt")
            yield load


def read_secrets(engine: Engine) -> tuple[str, str, list[str]]:
    """The authority's certificate, the root key and every secret as text; through a pipe, as an operator would read them."""
    read = partial(engine.compose, "run", "--rm", "-T", "--entrypoint", "cat", "ternmq")
    authority, root_key = read("/cluster/ca.crt"), read("/cluster/root.key").strip()
    key = engine.compose("run", "--rm", "-T", "--entrypoint", "base64", "ternmq", "-w0", "/cluster/cluster.key").strip()
    raw = base64.b64decode(key)
    assert len(raw) == 32, "the cluster key is not 32 bytes"
    return authority, root_key, [root_key, key, raw.hex()]


def make_principals(run: Run) -> None:
    """By command line, with the root key, in a container: the application, and somebody with next to no rights."""
    tool = partial(run.engine.compose, "run", "--rm", "-T", "ternmq")
    # Names of this run: a deployment that was kept has the keys of the last one, and a principal has two at most.
    app, narrow = (f"{name}-{secrets.token_hex(3)}" for name in ("acceptance", "narrow"))
    objects = ("--topic", f"{TOPIC}*", "--group", f"{GROUP}*", "--producer-group", f"{PRODUCERS}*")
    tool("acl", "grant", app, "ALL", *objects)
    tool("acl", "grant", narrow, "ALL", "--topic", OTHER_TOPIC)
    run.app_key, run.narrow_key = (tool("key", "create", name).strip().splitlines()[-1] for name in (app, narrow))
    run.known_secrets += [run.app_key, run.narrow_key]
    client = run.client()
    answered = eventually(
        lambda: client.ask("GET", "/v1/whoami").status == 200, within_s=15, what="the new key is good"
    )
    assert answered
    for topic in (TOPIC, HELLO):
        client.must("PUT", f"/v1/topics/{topic}", {"queues": QUEUES})
    client.must("PUT", f"/v1/groups/{GROUP}", {"invisible": "30s"})
    client.must("PUT", f"/v1/producer-groups/{PRODUCERS}", {})
    for port in PORTS:  # the other proxy hears of them from a name server, a moment later
        one = Client((port,), run.authority, run.app_key)
        for path in (f"/v1/topics/{TOPIC}", f"/v1/topics/{HELLO}", f"/v1/groups/{GROUP}"):
            eventually(partial(_is_there, one, path), within_s=20, what=f"{path} at {port}")


def _is_there(client: Client, path: str) -> bool:
    return client.ask("GET", path).status == 200


def messages_and_transactions(run: Run) -> None:
    """Produce, receive, ack; a transaction is seen after its commit and not before; both over TLS with a key, at either proxy."""
    for port in PORTS:
        client = Client((port,), run.authority, run.app_key)
        text = f"hello through {port}"
        sent = client.must("POST", paths.messages_path(HELLO), text.encode(), {"Content-Type": "text/plain"})
        assert sent["message_id"], sent
        assert _receive_and_ack(client) == [text]
        headers = {"MQ-Producer-Group": PRODUCERS, "Content-Type": "text/plain"}
        begun = client.must("POST", paths.begin_path(HELLO), b"half", headers)
        assert _receive_and_ack(client, wait="1s") == [], "a half message was delivered"
        client.must("POST", paths.transaction_path(begun["transaction_id"], "commit"))
        assert _receive_and_ack(client) == ["half"]
        assert _receive_and_ack(client, wait="0s") == [], "an acknowledged message came again"


def _receive_and_ack(client: Client, wait: str = "5s") -> list[str]:
    got = client.must("POST", paths.receive_path(HELLO, GROUP), {"max_messages": 10, "wait": wait})["messages"]
    if got:
        handles = [message["receipt_handle"] for message in got]
        client.must("POST", paths.ack_path(HELLO, GROUP), {"receipt_handles": handles})
    return [message["body"] for message in got]


def closed_doors(run: Run) -> None:
    """Without a key 401, with another's rights 403 or 404, in plain text or with another authority nothing at all."""
    send = ("POST", paths.messages_path(TOPIC), b"x")
    assert run.client("").ask(*send).status == 401
    assert run.client("mqk_AAAAAAAAAAAAAAAA_" + "A" * 43).ask(*send).status == 401
    assert run.client(run.narrow_key).ask(*send).status in {403, 404}
    assert run.client(run.narrow_key).ask("GET", f"/v1/topics/{TOPIC}").status == 404
    assert run.client(run.narrow_key).ask("PUT", "/v1/topics/acceptance-mine", {}).status in {403, 404}
    assert run.client(run.root_key).ask(*send).status == 403, "the root key sends"
    assert run.client("").ask("GET", "/healthz").status == 200
    assert run.client("").ask("GET", "/metrics").status == 401
    told = run.engine.docker(
        *("run", "--rm", "--network", run.engine.network("clients"), "--entrypoint", "python", "ternmq/mesh:0.1.0"),
        *("-I", "-c", _KNOCK),
    )
    assert told.split() == ["closed"] * 2, (
        f"the proxies' listener answers in plain text, or brokers are reachable: {told}"
    )


# From a container beside the clients: what answers a plain request, and whether a broker can be reached at all.
_KNOCK = """
import socket
def ask(host, port):
    try:
        with socket.create_connection((host, port), 2) as link:
            link.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            return "open" if link.recv(100).startswith(b"HTTP") else "closed"
    except OSError:
        return "closed"
print(ask("proxy-0", 8443), ask("broker-a-0", 10913))
"""


def hygiene_holds(run: Run) -> None:
    """Users, rights, ports, limits, tools and secrets of what runs; and of the image's layers."""
    containers = run.engine.containers()
    running = [each for each in containers.values() if each.is_running]
    assert {each.service for each in running} == set(SERVICES_KILLED), sorted(each.service for each in running)
    hygiene.check_doors(running)
    for each in running:
        hygiene.check_inside(run.engine, each)
    hygiene.check_texts(run.engine, list(containers.values()), run.known_secrets)
    image = running[0].document["Config"]["Image"]
    hygiene.check_layers(run.engine, image, [secret.encode() for secret in run.known_secrets])
    size = int(run.engine.docker("image", "inspect", "-f", "{{.Size}}", image))
    run.figures["image_mb"] = round(size / 1e6)


def kills(run: Run) -> None:
    """SIGKILL to each main process in turn, under load: it comes back and is healthy, and what was promised is there."""
    back: dict[str, float] = {}
    pauses: dict[str, float] = {}
    for service in SERVICES_KILLED:
        before = run.engine.containers()[service]
        with run.load(f"kill-{service}") as load:
            killed_s = time.monotonic()
            run.engine.kill_main_process(before)
            eventually(partial(_is_again, run.engine, before), within_s=HEALTHY_WITHIN_S, what=f"{service} is back")
            back[service] = round(time.monotonic() - killed_s, 1)
            eventually(partial(load.accepted_after, time.monotonic()), within_s=10, what=f"sends after {service} died")
            pauses[service] = round(load.longest_pause_s(killed_s, time.monotonic()), 2)
    run.figures |= {"healthy_after_kill_s": back, "longest_pause_of_sends_s": pauses}
    nothing_is_lost(run)


def _is_again(engine: Engine, before: Container) -> bool:
    now = engine.containers()[before.service]
    is_other = now.pid > 1 and now.pid != before.pid and now.restarts > before.restarts
    return is_other and now.is_running and now.health == "healthy"


def cut_off_leader(run: Run) -> None:
    """The leader's container is taken from the network: within 3 s a send is accepted again. Then it is put back."""
    client = run.client()
    leader = eventually(partial(_leader, client), within_s=15, what="a leader in the route")
    network, cut_off = run.engine.network("mesh"), run.engine.containers()[leader]
    with run.load("cut-off") as load:
        eventually(
            partial(load.accepted_after, time.monotonic() + SETTLED_S), within_s=30, what="a load that is under way"
        )
        began_s = time.monotonic()
        run.engine.docker("network", "disconnect", network, cut_off.id)
        done_s = time.monotonic()
        try:
            # What is under way at the moment of the cut may still be answered; whatever is sent a moment later needs a new leader.
            eventually(partial(load.accepted_after, done_s + GAP_MAX_S), within_s=30, what="a send is accepted again")
            pause_s = load.longest_pause_s(began_s, time.monotonic())
        finally:
            run.engine.docker("network", "connect", "--alias", leader, network, cut_off.id)
        other = eventually(partial(_leader, client, other_than=leader), within_s=30, what="another leader")
        eventually(partial(_has_caught_up, run, leader), within_s=HEALTHY_WITHIN_S, what=f"{leader} follows again")
    run.figures["cut_off"] = {
        "leader": leader,
        "then": other,
        "seconds_without_an_accepted_send": round(pause_s, 2),
        "disconnect_took_s": round(done_s - began_s, 2),
    }
    assert pause_s <= GAP_MAX_S, f"no send was accepted for {pause_s:.2f} s"
    nothing_is_lost(run)


def _leader(client: Client, other_than: str = "") -> str:
    answer = client.ask("GET", paths.topic_route_path(TOPIC))
    leader = str(answer.document["broker_groups"]["broker-a"]["leader"]) if answer.status == 200 else ""
    return "" if leader == other_than else leader


def _has_caught_up(run: Run, service: str) -> bool:
    return run.engine.containers()[service].health == "healthy"


def nothing_is_lost(run: Run) -> None:
    """Every promise of every load so far is kept, none twice."""
    found: Counter[str] = stored_bodies(run.client(), TOPIC)
    compare(run.loads, found)
    run.figures["acknowledged"] = sum(sender.acked for load in run.loads for sender in load.senders)
    run.figures["stored"] = found.total()


def down_and_up(run: Run) -> None:
    """All containers are removed and made again: messages, topics, groups, keys and grants are where they were."""
    before = _fingerprint(run)
    began_s = time.monotonic()
    run.engine.compose("down", "-t", "20")
    run.figures["down_s"] = round(time.monotonic() - began_s, 1)
    began_s = time.monotonic()
    run.engine.compose("up", "-d", "--wait", "--no-build")
    run.figures["up_again_s"] = round(time.monotonic() - began_s, 1)
    nothing_is_lost(run)
    assert _fingerprint(run) == before, "what is stored is not what was stored"
    messages_and_transactions(run)


def _fingerprint(run: Run) -> str:
    found = stored_bodies(run.client(), TOPIC)
    return hashlib.sha256("\n".join(sorted(found.elements())).encode()).hexdigest()
