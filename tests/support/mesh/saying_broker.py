"""A stand-in for a broker or a checker that also says something of itself: `say JSON` in $FAKE_ORDERS/NAME is its answer to any request.

Copied as tern_broker.py and tern_txn_checker.py beside a copy of fake_service.py, which does everything else.
"""

import os
import sys
from pathlib import Path

import fake_service  # type: ignore[import-not-found]  # the copy beside this one


def main(argv: list[str]) -> None:
    """As fake_service, with the answer that was ordered."""
    path = Path(os.environ["FAKE_ORDERS"]) / (
        fake_service.option(argv, "--node") or fake_service.option(argv, "--name")
    )
    order = path.read_text() if path.exists() else ""
    if order.startswith("say "):
        body = order.removeprefix("say ").encode()
        fake_service.ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
            len(body),
            body,
        )
    fake_service.main(argv)


if __name__ == "__main__":
    main(sys.argv[1:])
