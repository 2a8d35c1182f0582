"""Locust users for a running mesh: single and batch producers, and consumers. `make load`.

Consumers ack with their next receive. Each run has a topic and a group of its own. Every send
carries idempotency keys and is repeated with them after 503, 504 or a broken connection. At the end
the group is drained; the messages sent, stored and acked must agree, or the exit code is 1.

For a mesh that requires credentials: TERNMQ_KEY_FILE (a bearer key with all permissions for topics
and groups `load-*`) and TERNMQ_CA_FILE.
"""
# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False

import os
import uuid
from itertools import count
from typing import Any

import gevent
import msgspec
from locust import FastHttpUser, constant, events, task
from locust.runners import LocalRunner

from loadtest.ledger import Ledger, Send
from loadtest.settlement import RECEIVE_HEADERS, Client, read_send, settle_run
from tern_client.transport.credentials import Credentials
from tern_client.transport.exchange import Request
from tern_wire import paths

BODY_SIZE_BYTES = 1_024
BATCH_MESSAGES = 50
RECEIVE_MESSAGES = 32
# Short, so that leases of a stopped user end soon before the drain.
INVISIBLE = "5s"
PAUSE_S = 0.1
START_PATIENCE_S = 3.0


class RunState:
    """The one run of this process: its names and its ledger. Renewed at the start of a test."""

    def __init__(self) -> None:
        self.name = f"load-{uuid.uuid4().hex[:8]}"
        self.numbers = count()
        self.ledger = Ledger()
        self.began = False

    def key(self) -> str:
        """Return a new idempotency key."""
        return f"{self.name}-{next(self.numbers)}"


run = RunState()


@events.test_start.add_listener
def create_topic_and_group(environment: Any, **_: Any) -> None:
    """Create a new topic and group.

    The run ends here when there is no mesh, or when totals would be split over processes.
    """
    global run  # noqa: PLW0603 - the only place that Locust's listeners and users share
    run = RunState()
    environment.process_exit_code = 1
    try:
        if not isinstance(environment.runner, LocalRunner):
            raise RuntimeError(
                "the totals are kept in one process: start Locust without --master, --worker, --processes"
            )
        client = Client(environment.host)
        group = msgspec.json.encode({"invisible": INVISIBLE})
        client.must("PUT", paths.topic_path(run.name), b'{"queues": 8}', patience_s=START_PATIENCE_S)
        client.must("PUT", paths.group_path(run.name), group, patience_s=START_PATIENCE_S)
        run.began = True
    except RuntimeError as error:
        print(f"The load cannot begin: {error}. Is a mesh running at {environment.host}? Start one: ternmq up")
        environment.runner.quit()


@events.test_stop.add_listener
def compare_totals(environment: Any, **_: Any) -> None:
    """Settle open requests of the stopped users, drain, compare; the exit code is the result."""
    ledger = run.ledger
    if not run.began:
        return
    try:
        stored = settle_run(Client(environment.host), run.name, run.name, ledger)
    except RuntimeError as error:
        print(f"\nThe totals cannot be compared: {error}")
        return
    agree = ledger.agrees and stored == len(ledger.stored) > 0
    environment.process_exit_code = 0 if agree else 1
    print(f"\nTopic {run.name}: {ledger.report(stored)}\nThe totals {'agree' if agree else 'DISAGREE'}.")


class MeshUser(FastHttpUser):
    """The base of all users: no pauses, and sends repeated until their outcome is known."""

    abstract = True
    wait_time = constant(0)
    network_timeout = 40.0  # above the longest wait of a receive and the append deadline of a send
    insecure = False  # Locust's default accepts every certificate

    def __init__(self, environment: Any) -> None:
        credentials = Credentials((environment.host,))
        self.ssl_context_factory = credentials.context
        self.default_headers = dict(credentials.applied(Request("GET", "/"), environment.host).headers)
        super().__init__(environment)

    def send(self, key: str, send: Send, name: str) -> None:
        """Send until the message is stored.

        The end of the run repeats the send of a stopped user.
        """
        run.ledger.begin_send(key, send)
        while True:
            headers = dict(send.headers)
            with self.client.post(send.path, data=send.body, headers=headers, name=name, catch_response=True) as reply:
                document = msgspec.json.decode(reply.content) if reply.content else {}
                if read_send(run.ledger, key, reply.status_code, document):
                    return
                reply.failure(f"{reply.status_code}, repeated with the same key")
            run.ledger.repeated_sends += 1
            gevent.sleep(PAUSE_S)


class SingleProducer(MeshUser):
    """Sends one message in each request."""

    weight = 4

    @task
    def send_one(self) -> None:
        """Send 1 KiB."""
        key = run.key()
        headers = {paths.HEADER_IDEMPOTENCY_KEY: key, paths.HEADER_TAG: "single", "Content-Type": paths.OCTETS}
        self.send(key, Send(paths.messages_path(run.name), os.urandom(BODY_SIZE_BYTES), headers), "send single")


class BatchProducer(MeshUser):
    """Sends 50 messages in each request, in MessagePack."""

    weight = 1

    @task
    def send_fifty(self) -> None:
        """Send 50 KiB."""
        key = run.key()
        messages = [
            {"body": os.urandom(BODY_SIZE_BYTES), "tag": "batch", "idempotency_key": f"{key}-{number}"}
            for number in range(BATCH_MESSAGES)
        ]
        body = msgspec.msgpack.encode({"messages": messages})
        headers = {"Content-Type": paths.MSGPACK, "Accept": paths.JSON}
        self.send(key, Send(paths.batch_path(run.name), body, headers), f"send batch of {BATCH_MESSAGES}")


class Receiver(MeshUser):
    """Receives up to 32 messages and acks them with its next receive."""

    weight = 5

    def on_start(self) -> None:
        """Begin without received messages."""
        self.handles: list[str] = []

    @task
    def receive(self) -> None:
        """Receive once, with the acks of the last receive."""
        acks, self.handles = self.handles, []
        settle = [{"receipt_handle": handle, "action": "ack"} for handle in acks]
        body = msgspec.json.encode({"max_messages": RECEIVE_MESSAGES, "wait": "1s", "settle": settle})
        path = paths.receive_path(run.name, run.name)
        with self.client.post(
            path, data=body, headers=RECEIVE_HEADERS, name="receive + ack", catch_response=True
        ) as reply:
            if reply.status_code == 200:
                document = msgspec.msgpack.decode(reply.content)
                run.ledger.end_acks(acks, document.get("settled", []))
                self.handles = run.ledger.receive(document["messages"])
            elif reply.status_code in {0, 503, 504}:
                self.handles = acks  # whether they were settled is unknown: settling twice is harmless
                reply.failure(f"{reply.status_code}, acks go again")
                gevent.sleep(PAUSE_S)
            else:
                run.ledger.note_wrong(f"a receive got {reply.status_code}: {reply.text}")
