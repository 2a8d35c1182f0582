"""Shared vocabulary: records, rows, commands, link requests, names, limits, errors, paths. Pure."""

from tern_wire.errors import ERRORS, TernError, error_from
from tern_wire.names import QueueName, check_group, check_topic, parse_queue

__all__ = [
    "ERRORS",
    "QueueName",
    "TernError",
    "check_group",
    "check_topic",
    "error_from",
    "parse_queue",
]
