"""`python -m loadtest.bench.endpoints NAME=URL NAME=URL ...`: compare running meshes.

The same batches go to each in turns; the results are ratios to the first. To measure the cost of
TLS or of containers, run a mesh of each kind beside each other and name their proxies. An https URL
takes `,ca=FILE,key=FILE`: the authority, and a bearer key that may create topics and send. Each
turn has the machine to itself, but for the cost of idle meshes; a ratio is that of medians.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import ssl
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from loadtest.bench.http_load import HttpConnection, HttpError
from tern_wire import paths
from tern_wire.link.codec import encode_msgpack

_CONNECTIONS = 8
_TEMPLATES = 8
BODY_SIZE_BYTES = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The proxy of one mesh."""

    name: str
    host: str
    port: int
    context: ssl.SSLContext | None
    headers: bytes

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Parse an argument of the command line; ValueError."""
        name, equals, rest = text.partition("=")
        url, *options = rest.split(",")
        given = dict(option.partition("=")[::2] for option in options)
        parts = urlsplit(url)
        if not equals or parts.scheme not in {"http", "https"} or not parts.hostname or given.keys() - {"ca", "key"}:
            raise ValueError(f"'{text}' is not NAME=URL[,ca=FILE][,key=FILE]")
        context = ssl.create_default_context(cafile=given.get("ca")) if parts.scheme == "https" else None
        key = Path(given["key"]).read_text().strip() if "key" in given else ""
        headers = f"authorization: Bearer {key}\r\n".encode() if key else b""
        port = parts.port or (443 if context else 80)
        return cls(name=name, host=parts.hostname, port=port, context=context, headers=headers)

    async def open(self) -> HttpConnection:
        """Return a new connection."""
        return await HttpConnection.open(self.host, self.port, self.context)


class Sender:
    """Sends batches of *messages* messages to one target, whose topic exists."""

    def __init__(self, target: Target, messages: int, seed: int) -> None:
        self.target, self._messages = target, messages
        rng = random.Random(seed)
        self._bodies = [
            encode_msgpack({"messages": [{"body": rng.randbytes(BODY_SIZE_BYTES)} for _ in range(messages)]})
            for _ in range(_TEMPLATES)
        ]
        self._topic = f"endpoints-{os.getpid()}"
        self.rates: list[float] = []

    async def prepare(self) -> None:
        """Create the topic and send a first batch, so that the proxy has the topic's route."""
        connection = await self.target.open()
        headers = self.target.headers + b"content-type: application/json\r\n"
        status, answer = await connection.request("PUT", paths.topic_path(self._topic), headers, b'{"queues": 8}')
        if status not in {200, 201}:
            raise HttpError(f"{self.target.name}: {status} {answer[:300].decode(errors='replace')}")
        connection.close()
        await self.turn(1.0)
        self.rates.clear()

    async def turn(self, seconds: float) -> None:
        """Send for *seconds*; append one rate, in messages a second."""
        connections = [await self.target.open() for _ in range(_CONNECTIONS)]
        began_s = time.monotonic()
        sent = await asyncio.gather(*(self._send(each, began_s + seconds) for each in connections))
        self.rates.append(sum(sent) * self._messages / (time.monotonic() - began_s))
        for each in connections:
            each.close()

    async def _send(self, connection: HttpConnection, until_s: float) -> int:
        kind = f"content-type: {paths.MSGPACK}\r\naccept: {paths.MSGPACK}\r\n".encode()
        path, sent = paths.batch_path(self._topic), 0
        for body in itertools.cycle(self._bodies):
            if time.monotonic() >= until_s:
                break
            status, answer = await connection.request("POST", path, self.target.headers + kind, body)
            if status != 200:
                raise HttpError(f"{self.target.name}: {status} {answer[:300]!r}")
            sent += 1
        return sent


async def compare(targets: list[Target], *, messages: int, rounds: int, seconds: float) -> dict[str, object]:
    """Return median rates in messages a second, and their ratios to that of the first target."""
    senders = [Sender(target, messages, seed=1) for target in targets]
    for sender in senders:
        await sender.prepare()
    for number in range(rounds):
        # The order alternates, so that no target is always first.
        for sender in senders[:: -1 if number % 2 else 1]:
            await sender.turn(seconds)
    medians = {sender.target.name: statistics.median(sender.rates) for sender in senders}
    first = medians[targets[0].name]
    return {
        "batch_bytes": messages * BODY_SIZE_BYTES,
        "messages_per_s": {name: round(rate) for name, rate in medians.items()},
        "ratios": {name: round(rate / first, 3) for name, rate in medians.items()},
        "rounds": {sender.target.name: [round(rate) for rate in sender.rates] for sender in senders},
    }


def main() -> int:
    """Print a JSON line for each size of batches. Exit code 1 when a request was refused."""
    parser = argparse.ArgumentParser(prog="python -m loadtest.bench.endpoints", description=__doc__)
    parser.add_argument("targets", nargs="+", metavar="NAME=URL", help="two or more; ratios are to the first")
    parser.add_argument(
        "--messages", type=int, action="append", help="of 1 KiB in a batch; repeat it (default 50, 500)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn (default 3)")
    options = parser.parse_args()
    try:
        targets = [Target.parse(text) for text in options.targets]
        for messages in options.messages or [50, 500]:
            found = compare(targets, messages=messages, rounds=options.rounds, seconds=options.seconds)
            print(json.dumps(uvloop.run(found)), flush=True)
    except (ValueError, OSError) as failure:
        print(f"The bench failed: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
