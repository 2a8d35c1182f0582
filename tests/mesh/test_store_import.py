"""A real RocketMQ broker's store goes into a real mesh through `ternmq store import`, and a consumer gets all of it."""

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from tern_cli.app import app
from tern_cli.store.rocketmq_message import OWN_PROPERTIES
from tern_client import BlockingConsumer, ReceivedMessage
from tests.support.files.rocketmq_golden import GOLDEN, golden_part
from tests.support.mesh.mesh import Mesh


def described() -> dict[str, list[dict[str, Any]]]:
    """What the broker said of the messages in users' topics, by topic, queue after queue."""
    part = golden_part(".")
    rows = {row["physicalOffset"]: row for row in part.described["records"]}
    found: dict[str, list[dict[str, Any]]] = {}
    for queue in part.described["consumeQueues"]:
        if queue["topic"].startswith(("GoldA", "T1")):
            found.setdefault(queue["topic"], []).extend(rows[entry["physicalOffset"]] for entry in queue["entries"])
    return found


def facts_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """One message as the broker describes it."""
    users = {name: value for name, value in row["properties"].items() if name not in OWN_PROPERTIES}
    told = (row["properties"].get("TAGS", ""), row["properties"].get("KEYS", "").split())
    return (row["queueId"], row["properties"]["UNIQ_KEY"], b64decode(row["body"]), *told, users, row["bornTimestamp"])


def facts(message: ReceivedMessage) -> tuple[Any, ...]:
    """The same of one that was received."""
    properties = dict(message.properties)
    rest = json.loads("".join(properties.pop(f"rocketmq-rest-{at}", "") for at in range(8)) or "{}")
    born_ms, message_id = int(properties.pop("rocketmq-born-ms")), properties.pop("rocketmq-message-id")
    properties.pop("rocketmq-flag", None)
    tag, queue = rest.pop("TAGS", message.tag), int(message.queue.partition(":")[2])
    return (queue, message_id, message.body, tag, list(message.keys), properties | rest, born_ms)


def test_a_rocketmq_store_is_imported_once_and_received_whole(mesh: Mesh, tmp_path: Path) -> None:
    """Every message that RocketMQ lists, in its queue and order; importing again, without the note, stores nothing twice."""
    words = ["store", "import", str(GOLDEN), "--endpoint", mesh.endpoint, "-o", "json", "--state"]
    first = json.loads(CliRunner().invoke(app, [*words, str(tmp_path / "first.json")]).stdout)
    wanted = described()
    assert (first["messages"], first["replayed"], first["refused"]) == (sum(map(len, wanted.values())), 0, 0)
    again = json.loads(CliRunner().invoke(app, [*words, str(tmp_path / "again.json")]).stdout)
    assert (again["messages"], again["replayed"]) == (first["messages"], first["messages"])
    mesh.create("T1", "imported", queues=1)
    for topic, rows in wanted.items():
        received: list[ReceivedMessage] = []
        with BlockingConsumer(mesh.endpoint, topic, "imported") as consumer:
            while len(received) < len(rows) and (messages := consumer.receive(256, 10_000)):
                received += messages
                consumer.confirm(*messages)
            received += consumer.receive(256, 0)
        received.sort(key=lambda message: (int(message.queue.partition(":")[2]), message.offset))
        assert [facts(message) for message in received] == [facts_of(row) for row in rows], topic
