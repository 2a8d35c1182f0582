"""Kinds of RocketMQ's files."""

from enum import StrEnum


class FileKind(StrEnum):
    """The three kinds of large files, named after RocketMQ's folders for them."""

    COMMIT_LOG = "commitlog"
    CONSUME_QUEUE = "consumequeue"
    INDEX = "index"
