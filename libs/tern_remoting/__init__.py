"""The link between proxies and brokers and between Raft peers: frames, handshake, multiplexing.

All processes of a mesh share a 32-byte cluster key; both ends of a link prove that they have it
before anything else is read. After the handshake both ends may send requests, replies and one-ways.
"""

from tern_remoting.completion import problem_of, tell
from tern_remoting.credit import Room
from tern_remoting.dial import Redialer, dial
from tern_remoting.errors import (
    FrameCorrupt,
    FrameTooLarge,
    HandshakeRefused,
    LinkBusy,
    LinkClosed,
    LinkError,
    LinkTimeout,
    PortInUse,
    WrongGroup,
    WrongKey,
)
from tern_remoting.frames import ONE_WAY, RESPONSE, Buffer, Frame, FrameReader, encode_frame
from tern_remoting.handshake import PeerName
from tern_remoting.link import Link
from tern_remoting.refusals import Refusal, Refusals
from tern_remoting.server import LinkServer

__all__ = [
    "ONE_WAY",
    "RESPONSE",
    "Buffer",
    "Frame",
    "FrameCorrupt",
    "FrameReader",
    "FrameTooLarge",
    "HandshakeRefused",
    "Link",
    "LinkBusy",
    "LinkClosed",
    "LinkError",
    "LinkServer",
    "LinkTimeout",
    "PeerName",
    "PortInUse",
    "Redialer",
    "Refusal",
    "Refusals",
    "Room",
    "WrongGroup",
    "WrongKey",
    "dial",
    "encode_frame",
    "problem_of",
    "tell",
]
