"""The credentials of a client, and the certificate authorities that it trusts: a key in a file, an
authority in a file.

    key_file=, or TERNMQ_KEY_FILE    one line: a bearer key `mqk_...`, sent with every request,
                                     or a signing key `mqs_...`, which is never sent
    ca_file=, or TERNMQ_CA_FILE      PEM; without it, https trusts the authorities of the system

A file that is replaced is read again within REREAD_INTERVAL_S, so keys rotate without a restart. ""
instead of a file means no file, whatever the environment says. Keys are never arguments: every
process of the machine can read a command line.

Law: a bearer key leaves this process over TLS, or to this machine. Owner: one client; safe to share
between its threads.
"""

import os
import ssl
import time
from collections.abc import Callable, Sequence
from typing import ClassVar
from urllib.parse import urlsplit

from tern_client.transport.exchange import Headers, Request
from tern_client.transport.signing import signer
from tern_wire.errors import TernError
from tern_wire.extras import ExtraMissing
from tern_wire.principals.client_keys import BEARER, HMAC_PREFIX, read_key_text
from tern_wire.reasons import reason_of

KEY_FILE, CA_FILE = "TERNMQ_KEY_FILE", "TERNMQ_CA_FILE"
REREAD_INTERVAL_S = 2.0
# The size of a key and a line's end. Anything longer is another file.
_KEY_SIZE_MAX_BYTES = 1_024
FileName = str | os.PathLike[str]
# Makes the headers that authenticate a request to an endpoint.
Prove = Callable[[Request, str], Headers]


_MAKE_KEY = "Make a key with `ternmq key create --out FILE`, and name it by key_file or TERNMQ_KEY_FILE"
_REPLACE_HMAC = "Make an Ed25519 key with `ternmq key create PRINCIPAL --type ed25519 --out FILE`, and revoke this one"
_NAME_CA = "Name the cluster's ca.crt, in PEM, by ca_file or TERNMQ_CA_FILE"


class CredentialsUnusable(TernError, ValueError):
    """A named file cannot be used, or may not be used with these endpoints. Raised by clients,
    never on the wire.

    Example:

        from tern_client import BlockingProducer, CredentialsUnusable

        try:
            BlockingProducer("http://127.0.0.1:8080", key_file="no-such.key")
        except CredentialsUnusable as error:
            print(error.code)  # -> credentials-unusable
    """

    code: ClassVar[str] = "credentials-unusable"
    status: ClassVar[int] = 400
    title: ClassVar[str] = "The credentials cannot be used"
    fix: ClassVar[str] = "{reason}. {remedy}."

    def __init__(self, *, reason: str, remedy: str = _MAKE_KEY) -> None:
        super().__init__(reason=reason, remedy=remedy)


class Credentials:
    """A key and a certificate authority; each may be absent."""

    __slots__ = ("_ca_file", "_key_file", "_prove", "_read_at_s", "_seen")

    def __init__(
        self, endpoints: Sequence[str], key_file: FileName | None = None, ca_file: FileName | None = None
    ) -> None:
        """None stands for the environment's file. CredentialsUnusable when a file cannot be used,
        or a key would travel in the clear; ExtraMissing when a library for its signatures is not
        installed.
        """
        self._key_file = os.fspath(os.environ.get(KEY_FILE, "") if key_file is None else key_file)
        self._ca_file = os.fspath(os.environ.get(CA_FILE, "") if ca_file is None else ca_file)
        self._prove: Prove | None = None
        self._seen: tuple[int, int, int] = (0, 0, 0)
        self._read_at_s = 0.0
        if not self._key_file:
            return
        for endpoint in endpoints:
            address = urlsplit(endpoint)
            if address.scheme != "https" and address.hostname not in {"127.0.0.1", "::1", "localhost"}:
                raise CredentialsUnusable(
                    reason=f"A key is not sent to {endpoint}, where anybody could read it on its way"
                )
        self._read()

    def applied(self, request: Request, endpoint: str) -> Request:
        """Return *request* with the headers that authenticate it at *endpoint*."""
        if not self._key_file:
            return request
        if time.monotonic() - self._read_at_s >= REREAD_INTERVAL_S:
            self._reread()
        assert self._prove is not None
        return Request(
            request.method,
            request.path,
            (*request.headers, *self._prove(request, endpoint)),
            request.body,
            request.wait_ms,
            request.repeatable,
            request.stores,
        )

    def context(self) -> ssl.SSLContext:
        """Return the authorities that https connections trust; CredentialsUnusable."""
        try:
            return ssl.create_default_context(cafile=self._ca_file or None)
        except OSError as error:
            raise CredentialsUnusable(
                reason=f"The file {self._ca_file} has no certificates ({reason_of(error)})", remedy=_NAME_CA
            ) from error

    def _reread(self) -> None:
        """Read the key file again if it has changed. A file that is missing or half written changes
        nothing.
        """
        self._read_at_s = time.monotonic()
        try:
            found = os.stat(self._key_file)
            if (found.st_mtime_ns, found.st_size, found.st_ino) != self._seen:
                self._read()
        except (OSError, CredentialsUnusable, ExtraMissing):
            return

    def _read(self) -> None:
        try:
            with open(self._key_file, "rb") as file:
                found = os.fstat(file.fileno())
                text = file.read(_KEY_SIZE_MAX_BYTES).decode("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CredentialsUnusable(reason=f"The key file {self._key_file} cannot be read ({reason})") from None
        key = read_key_text(text)
        if text.startswith(HMAC_PREFIX):
            reason = f"The file {self._key_file} holds an HMAC key, which is not accepted any more"
            raise CredentialsUnusable(reason=reason, remedy=_REPLACE_HMAC)
        if key is None:
            raise CredentialsUnusable(reason=f"The file {self._key_file} does not hold a key")
        kind, kid, secret = key
        if kind == BEARER:
            header = (("Authorization", f"Bearer {text}"),)
            self._prove = lambda _request, _endpoint: header
        else:
            self._prove = signer(kid, secret)
        self._seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        self._read_at_s = time.monotonic()
