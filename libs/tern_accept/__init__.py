"""Admission at a port: accepting, and limits for connections that are not authenticated yet."""

from tern_accept.acceptor import Acceptor
from tern_accept.descriptors import OURS, Descriptors
from tern_accept.strangers import Strangers

__all__ = ["OURS", "Acceptor", "Descriptors", "Strangers"]
