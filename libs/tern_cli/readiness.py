"""Whether a mesh accepts a message: it is sent one. Standard library only, one short connection, so that `ternmq up` starts fast."""

import http.client
import json
from urllib.parse import urlsplit

# Where `ternmq up` sends its one message per start; kept, so that a mesh's starts can be read back.
READINESS_TOPIC = "ternmq-up"
_TIMEOUT_S = 2.0
# What the answer of a mesh says that refuses sends for want of disk space (tern_wire.errors.DiskFull).
DISK_FULL = "refuses sends until disk space is free"


def accepts_a_message(endpoint: str) -> str:
    """ "" once a message is stored through *endpoint*, else why it was not."""
    path = f"/v1/topics/{READINESS_TOPIC}"
    # Declared every time: a name server that has just started answers an unknown topic with 503 for some seconds.
    status, said = _ask(endpoint, "PUT", path, b'{"queues":1}')
    if status < 300:
        status, said = _ask(endpoint, "POST", f"{path}/messages", b"up")
    # A full disk refuses sends only; reading and acking, which may free it, must be possible.
    return "" if 200 <= status < 300 or DISK_FULL in said else said


def _ask(endpoint: str, method: str, path: str, body: bytes) -> tuple[int, str]:
    address = urlsplit(endpoint)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S)
    try:
        content_type = "application/json" if method == "PUT" else "text/plain"
        connection.request(method, path, body, {"Content-Type": content_type})
        response = connection.getresponse()
        return response.status, f"{endpoint} answers {response.status}: {_detail(response.read())}"
    except (OSError, http.client.HTTPException) as error:
        return 599, f"{endpoint} does not answer ({error})"
    finally:
        connection.close()


def _detail(body: bytes) -> str:
    try:
        problem = json.loads(body)
    except ValueError:
        return body[:200].decode("utf-8", "replace")
    return str(problem.get("detail", problem)) if isinstance(problem, dict) else str(problem)
