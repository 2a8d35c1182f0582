"""Canaries: unique secrets are used in every way, and then everything that the mesh writes, shows or is started with is searched for them."""

import base64
import secrets
from collections.abc import Iterator
from pathlib import Path

import httpx

from tern_client import BlockingAdmin, RetryPolicy
from tern_wire.errors import TernError
from tern_wire.principals.client_keys import read_key_text, signing_text
from tests.support.mesh.secure_mesh import SecureMesh, bearer, grant

BODY = f"canary-{secrets.token_hex(16)}"
CHECK_SECRET = f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"


def secret_parts(mesh: SecureMesh, *keys: str) -> dict[str, bytes]:
    """What may be found nowhere, by name: of keys what only their owner knows, as text and as bytes."""
    cluster_key = mesh.cluster.cluster_key.read_bytes()
    found = {
        "a body": BODY.encode(),
        "a callback secret": CHECK_SECRET.encode(),
        "the cluster key in hex": cluster_key.hex().encode(),
        "the cluster key in base64": base64.b64encode(cluster_key)[:43],
        "the cluster key": cluster_key,
        "the authority's key": mesh.authority.key.split(b"\n")[1],
    }
    for number, text in enumerate((mesh.root_key, *keys)):
        known = read_key_text(text)
        assert known is not None
        found |= {f"key {number}": text[-43:].encode(), f"key {number} as bytes": known[2]}
    return found


def use_everything(mesh: SecureMesh, key: str, signing_key: str, directory: Path) -> Iterator[str]:
    """Requests that work and requests that fail, each with secrets in it; what they are answered with."""
    with mesh.with_key(key) as client:
        for answer in (
            client.put("/v1/topics/canaries"),
            client.put("/v1/groups/canaries"),
            client.put("/v1/producer-groups/canaries", json={"check_secret": CHECK_SECRET}),
            client.get("/v1/producer-groups/canaries"),
            client.post("/v1/topics/canaries/messages", content=BODY),
            client.post("/v1/topics/others/messages", content=BODY),
            client.post("/v1/topics/canaries/messages/batch", content=f'{{"messages": [{{"body": "{BODY}"'.encode()),
            client.post("/v1/topics/canaries/transactions?producer_group=canaries", content=BODY),
            client.post("/v1/topics/canaries/transactions", content=BODY),
            client.put("/v1/principals/canary", json={"grants": []}),
            client.post("/v1/topics/canaries/groups/canaries/ack", json={"receipt_handles": ["x"]}),
        ):
            yield f"{answer.headers} {answer.text}"
        received = client.post("/v1/topics/canaries/groups/canaries/receive?wait=5s")
        assert BODY in received.text
    with mesh.with_key() as nobody:
        for authorization in (
            *(
                f"Basic {key}",
                f"Bearer {key}.",
                f"Bearer {key[:-1]}",
                key,
                f"bearer  {key}x",
                f"Bearer {signing_key}",
            ),
        ):
            answer = nobody.get("/v1/whoami", headers={"Authorization": authorization})
            yield f"{answer.headers} {answer.text}"
        raw = nobody.post("/v1/topics/canaries/messages", content=BODY, headers={"X-Key": key, "Cookie": f"key={key}"})
        yield f"{raw.headers} {raw.text}"
    for name, text in (("bearer", key), ("signing", signing_key)):
        file = directory / f"{name}.key"
        file.write_text(text)
        file.chmod(0o600)
        policy = RetryPolicy(deadline_ms=5_000)
        with BlockingAdmin(mesh.endpoint, policy=policy, key_file=file, ca_file=mesh.cluster.ca_cert) as admin:
            try:
                yield str(admin.topics())
            except TernError as error:
                yield f"{error} {error.fields}"


def what_can_be_seen(mesh: SecureMesh) -> Iterator[tuple[str, bytes]]:
    """Logs, small files, command lines and environments of every process, metrics and statuses of every door; by name."""
    for written in [*mesh.directory.glob("logs/*"), *mesh.directory.glob("*.json")]:
        yield written.name, written.read_bytes()
    rows = mesh.processes()
    for row in rows:
        for file in ("cmdline", "environ", "status"):
            yield f"{row['name']}/{file}", Path(f"/proc/{row['pid']}/{file}").read_bytes()
    with mesh.inside() as inside:
        for row in rows:
            port = row["ports"].get("http")
            if port is None or row["role"] == "proxy":
                continue
            for path in ("/metrics", "/healthz?verbose", "/readyz"):
                yield f"{row['name']}{path}", inside.get(f"https://127.0.0.1:{port}{path}").content
    for path in ("/metrics", "/readyz", "/healthz?verbose", "/v1/cluster", "/v1/principals", "/v1/acls", "/v1/topics"):
        yield path, mesh.client.get(mesh.endpoint + path).content
    yield "the audit", audit_of(mesh.client, mesh.endpoint)


def audit_of(client: httpx.Client, proxy: str) -> bytes:
    """All of the audit topic."""
    topic = f"{proxy}/v1/topics/tern_AUDIT_TOPIC"
    queues = client.get(f"{topic}/offsets").json()["queues"]
    return b"".join(client.get(f"{topic}/queues/{row['queue']}/messages?max_messages=9999").content for row in queues)


def test_no_secret_is_in_anything_that_is_written_or_shown(secure_mesh: SecureMesh, tmp_path: Path) -> None:
    """Keys, bodies, the cluster key, the authority's key, callback secrets: 0 hits, and the search finds what it is to find."""
    everything = (
        *(grant("topic", "canaries*", "ALL"), grant("group", "canaries*", "ALL")),
        *(grant("producer-group", "canaries*", "ALL"), grant("cluster", "*", "DESCRIBE")),
    )
    key = secure_mesh.new_key("canary", *everything)
    signing_key = signing_text("C" * 16, secrets.token_bytes(32))
    answers = "\n".join(use_everything(secure_mesh, key, signing_key, tmp_path))
    hidden = secret_parts(secure_mesh, key, signing_key)
    seen = {"answers": answers.encode(), **dict(what_can_be_seen(secure_mesh))}
    hits = [f"{secret} in {place}" for place, text in seen.items() for secret, part in hidden.items() if part in text]
    # The one answer that shows a secret is that of the PUT that has set it.
    assert hits == ["a callback secret in answers"]
    kid = key.split("_")[1].encode()
    assert kid in seen["/v1/principals"]
    assert kid in seen["the audit"]
    assert bearer(key)["Authorization"].encode().split(b"_")[1] == kid


def test_the_brokers_files_have_no_key(secure_mesh: SecureMesh) -> None:
    """At rest there is the hash of a key, in the log and in the saved state alike."""
    key = secure_mesh.new_key("at-rest", grant("topic", "at-rest", "PUB"))
    hidden = {name: part for name, part in secret_parts(secure_mesh, key).items() if name.startswith("key")}
    files = [path for path in (secure_mesh.directory / "data").rglob("*") if path.is_file()]
    hits = [f"{secret} in {path}" for path in files for secret, part in hidden.items() if part in path.read_bytes()]
    assert hits == []
    assert any(key.split("_")[1].encode() in path.read_bytes() for path in files), "the search finds what is there"
