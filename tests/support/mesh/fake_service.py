"""A stand-in for one process of a mesh: answers 201 to any HTTP request on its port, and misbehaves as it is told.

Copied as tern_namesrv.py and tern_proxy.py by the tests of `ternmq up`, or run as it is. What it must do wrong stands in
$FAKE_ORDERS/NAME: `exit CODE` (at once), `deaf` (ignores SIGTERM). Every start appends its arguments to $FAKE_ORDERS/starts.
"""

import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

ANSWER = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def option(argv: list[str], name: str) -> str:
    """The value behind --NAME; "" when it is not there."""
    return argv[argv.index(name) + 1] if name in argv else ""


def stop(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM: say so and end."""
    print("stopped", flush=True)
    os._exit(0)


def main(argv: list[str]) -> None:
    """Listen until SIGTERM."""
    role = Path(__file__).stem.removeprefix("tern_")
    name = option(argv, "--node") or option(argv, "--name") or f"{role}-0"
    orders = Path(os.environ["FAKE_ORDERS"])
    with (orders / "starts").open("a") as starts:
        starts.write(f"{name} {os.getpid()} {' '.join(argv)}\n")
    order = (orders / name).read_text() if (orders / name).exists() else ""
    if order.startswith("exit"):
        print(f"I was told to {order}", flush=True)
        sys.exit(int(order.split()[1]))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if order == "deaf" else stop)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", int(option(argv, "--port") or option(argv, "--http-port") or 0)))
        listener.listen()
        print(f"{name} listens, malloc arenas {os.environ.get('MALLOC_ARENA_MAX')}", flush=True)
        while True:
            client, _ = listener.accept()
            with client:
                client.settimeout(2)
                data = client.recv(65536)
                head, _, body = data.partition(b"\r\n\r\n")
                length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                while length and len(body) < int(length[0].split(b":")[1]):
                    body += client.recv(65536)
                client.sendall(ANSWER)


if __name__ == "__main__":
    main(sys.argv[1:])
