"""A program that consumes as docs/sdk.md shows it: `python -m tests.support.client.consuming_worker async|blocking URL AT [TOPIC GROUP]`.

Prints the id of each message that its handler gets. The message number AT (from 1) is never done: there it waits for its end.
"""

import asyncio
import sys
import threading

from tern_client import BlockingConsumer, Consumer, run


async def consume(url: str, stop_at: int, topic: str = "t", group: str = "g") -> None:
    """With asyncio."""
    async with Consumer(url, topic, group) as consumer:
        handled = 0
        async for message in consumer:
            print(message.message_id, flush=True)
            handled += 1
            if handled == stop_at:
                await asyncio.Event().wait()
            consumer.confirm(message)


def consume_blocking(url: str, stop_at: int, topic: str = "t", group: str = "g") -> None:
    """Without."""
    with BlockingConsumer(url, topic, group) as consumer:
        for handled, message in enumerate(consumer, 1):
            print(message.message_id, flush=True)
            if handled == stop_at:
                while not consumer._is_stopped:
                    threading.Event().wait(0.02)
            else:
                consumer.confirm(message)


if __name__ == "__main__":
    shell, url, stop_at, *names = sys.argv[1:]
    run(consume(url, int(stop_at), *names) if shell == "async" else lambda: consume_blocking(url, int(stop_at), *names))
