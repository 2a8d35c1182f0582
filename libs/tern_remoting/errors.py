"""What can go wrong on a link. Services turn these into errors of tern_wire; no text here comes from the peer."""

from typing import ClassVar

from tern_remoting.refusals import Refusal


class LinkError(Exception):
    """Base of everything that ends a link or a request on it."""

    # What the peer is counted under when this ends its link (`refusals.py`).
    refusal: ClassVar[Refusal] = Refusal.GARBAGE


class FrameCorrupt(LinkError):
    """The bytes are no frame; the stream cannot be resynchronised, so its link must close."""


class FrameTooLarge(LinkError):
    """A frame's declared or intended size is over the limit. Raised before anything of that size is buffered."""

    refusal = Refusal.OVERSIZED

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"a frame of {size_bytes} bytes; the limit is {limit_bytes}")
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class HandshakeRefused(LinkError):
    """The peer did not prove that it knows the cluster key, belongs to another cluster, or is not wanted here."""

    refusal = Refusal.GREETING


class WrongKey(HandshakeRefused):
    """The peer does not know the cluster key, or repeats what somebody who knows it said on another connection."""

    refusal = Refusal.KEY


class WrongGroup(HandshakeRefused):
    """The peer is of another group id."""

    refusal = Refusal.GROUP


class WrongCertificate(HandshakeRefused):
    """The peer knows the key, and its certificate is for another role, or for another broker."""

    refusal = Refusal.STRANGER


class LinkClosed(LinkError):
    """The link is down. A request that was in flight may or may not have been carried out."""


class LinkTimeout(LinkError):
    """No reply, or no link, within the caller's time. The request may or may not have been carried out."""

    refusal = Refusal.LATE


class LinkBusy(LinkError):
    """Too many requests or bytes wait on this link already. Nothing was sent."""

    refusal = Refusal.UNREAD


class PortInUse(OSError):
    """Somebody listens on the port already."""

    def __init__(self, host: str, port: int, option: str = "--port") -> None:
        super().__init__(f"port {port} on {host} is in use; choose another with {option}")
        self.host = host
        self.port = port
