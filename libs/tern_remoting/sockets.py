"""Options of a link's socket, the peer's address, and where bytes are read."""

import asyncio
import logging
import socket
from weakref import WeakKeyDictionary

from tern_remoting.frames import SCRATCH_SIZE_BYTES

log = logging.getLogger(__name__)

# A host without power or network sends nothing: after this long without an acknowledgement of the
# peer's kernel the connection is given up. The kernel of a stopped process keeps acknowledging.
SILENCE_MAX_S = 10
# One place to read for all links of a loop, which reads one of them at a time.
_SCRATCHES: WeakKeyDictionary[asyncio.AbstractEventLoop, bytearray] = WeakKeyDictionary()


def address_of(peername: object) -> str:
    """`host:port` of a TCP peer, "" of any other."""
    return f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else ""


def tune(sock: socket.socket | None, silence_max_s: int) -> None:
    """Send small frames at once and detect a vanished host. A reset socket may refuse options.
    Keepalive probes cover an idle link; unacknowledged data has the user timeout (RFC 5482).
    """
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    probe_s = max(1, silence_max_s // 3)
    options = {
        "TCP_KEEPIDLE": probe_s,
        "TCP_KEEPINTVL": probe_s,
        "TCP_KEEPCNT": 2,
        "TCP_USER_TIMEOUT": silence_max_s * 1000,
    }
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in options.items():
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    except OSError as error:
        log.debug("socket options refused", extra={"reason": str(error)})


def scratch_of(loop: asyncio.AbstractEventLoop) -> bytearray:
    """Return the scratch of every FrameReader of *loop*."""
    scratch = _SCRATCHES.get(loop)
    if scratch is None:
        scratch = _SCRATCHES[loop] = bytearray(SCRATCH_SIZE_BYTES)
    return scratch
