"""Which of RocketMQ's files one is."""

from enum import StrEnum


class FileKind(StrEnum):
    """The three kinds of big files, named after the folders in which RocketMQ keeps them."""

    COMMIT_LOG = "commitlog"
    CONSUME_QUEUE = "consumequeue"
    INDEX = "index"
