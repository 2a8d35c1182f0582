"""A program whose Worker dies by `kill -9` in its first handler: `python -m tests.support.client.crashing_worker URL TOPIC GROUP STARTS`.

Each start is a fork, so that many of them take no longer than one import. Prints `body attempt` of each message whose handler began.
"""

import os
import signal
import sys

from tern_client import ReceivedMessage, Worker


def crash(url: list[str], topic: str, group: str) -> None:
    """Run a worker until its first message."""
    worker = Worker(url)

    @worker.on(topic, group=group, concurrency=8)
    async def handle(message: ReceivedMessage) -> None:
        print(message.body.decode(), message.attempt, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    worker.run()


if __name__ == "__main__":
    urls, topic, group, starts = sys.argv[1:]
    for _ in range(int(starts)):
        child = os.fork()
        if not child:
            crash(urls.split(","), topic, group)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), status
