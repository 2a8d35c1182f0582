"""Errors of a link. Services convert them to errors of tern_wire; no text comes from the peer."""

from typing import ClassVar

from tern_remoting.refusals import Refusal


class LinkError(Exception):
    """Base of everything that ends a link or a request on it."""

    # The counter of peers whose links end with this error (`refusals.py`).
    refusal: ClassVar[Refusal] = Refusal.GARBAGE


class FrameCorrupt(LinkError):
    """The bytes are no frame; the stream cannot be resynchronised, so its link must close."""


class FrameTooLarge(LinkError):
    """A frame's declared or intended size is over the limit.
    Raised before the bytes are buffered.
    """

    refusal = Refusal.OVERSIZED

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"a frame of {size_bytes} bytes; the limit is {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class HandshakeRefused(LinkError):
    """The peer did not prove the cluster key, belongs to another cluster, or is not accepted
    here.
    """

    refusal = Refusal.GREETING


class WrongKey(HandshakeRefused):
    """The peer does not have the cluster key, or replays another connection's greeting."""

    refusal = Refusal.KEY


class WrongGroup(HandshakeRefused):
    """The peer has another group id."""

    refusal = Refusal.GROUP


class WrongCertificate(HandshakeRefused):
    """The peer has the key, but its certificate is for another role or broker."""

    refusal = Refusal.STRANGER


class LinkClosed(LinkError):
    """The link is down. A request in flight may or may not have been carried out."""


class LinkTimeout(LinkError):
    """No reply or no link in the caller's time.
    The request may or may not have been carried out.
    """

    refusal = Refusal.LATE


class LinkBusy(LinkError):
    """Too many requests or bytes wait on this link. Nothing was sent."""

    refusal = Refusal.UNREAD


class PortInUse(OSError):
    """Another process listens on the port."""

    def __init__(self, host: str, port: int, option: str = "--port") -> None:
        super().__init__(f"port {port} on {host} is in use; choose another with {option}")
        self.host = host
        self.port = port
