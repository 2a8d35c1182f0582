"""Who is let in at a port: accepting, and connections that have not shown who they are, which are few and do not stay long."""

from tern_accept.acceptor import Acceptor
from tern_accept.descriptors import OURS, Descriptors
from tern_accept.strangers import Strangers

__all__ = ["OURS", "Acceptor", "Descriptors", "Strangers"]
