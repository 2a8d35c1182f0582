"""The TLS of one process: its certificate, its trust store, and all contexts made of both.

Owner of the files' last good generation. A thread reads the files every second, so that neither a
slow disk nor a renewed certificate delays a loop. Law: an unusable set (a key of another
certificate, an expired one, a trust store without the certificate's own issuer, another identity)
changes nothing: it is logged once, counted, and the old set stays in use.
"""

import logging
import ssl
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tern_security.contexts import (
    CheckedContext,
    PeerCheck,
    ReloadingContext,
    TlsRefusal,
    make_context,
    reloading,
)
from tern_security.peer_identity import PeerIdentity, identity_of
from tern_wire.reasons import reason_of

log = logging.getLogger(__name__)

# Within 5 s is promised; reading three small files a second costs about 100 us.
LOOK_INTERVAL_S = 1.0
# Limit of one file: a certificate with its chain, or a bundle of authorities.
FILE_SIZE_MAX_BYTES = 1 << 20


class TlsUnusable(ValueError):
    """Certificate, key and trust store cannot be used; the text says the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of a process's certificate (with chain), key (no passphrase) and trusted authorities.
    PEM.
    """

    cert: Path
    key: Path
    ca: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """One good generation."""

    contents: tuple[bytes, ...]
    identity: PeerIdentity
    certificate_expires_s: float
    ca_expires_s: float


class ClusterTls:
    """Made once, before any listener opens; TlsUnusable.
    *role*: the certificate's required role; *name*: its required name, "" for any. *minimum*: for
    the listeners of clients.
    """

    def __init__(
        self, files: TlsFiles, *, role: str, name: str = "", minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> None:
        self._files, self._minimum = files, minimum
        self.reloads = 0
        self.failed_reloads = 0
        self._refusals: Counter[TlsRefusal] = Counter()
        self._contexts: list[tuple[ReloadingContext, bool, PeerCheck]] = []
        self._loaded = self._load(_read(files))
        # Unusable contents of the last look, and those that were already logged.
        self._suspect: tuple[bytes, ...] | None = None
        self._told: tuple[bytes, ...] | None = None
        self._stopped = threading.Event()
        found = self._loaded.identity
        if found.role != role or (name and found.name != name):
            raise TlsUnusable(
                f"The certificate {files.cert} belongs to {found.role} '{found.name}', and this is {role} '{name or 'any'}'; "
                "give it its own with --tls-cert-file and --tls-key-file (ternmq init-cluster makes them)."
            )

    # Contexts -------------------------------------------------------------------------------------
    def server(self, roles: frozenset[str] | None) -> ReloadingContext:
        """A lasting context for a listener whose peers have one of *roles*; None: no
        certificates.
        """
        return self._add(server_side=True, roles=roles)

    def client(self, roles: frozenset[str]) -> ReloadingContext:
        """A lasting context for connections to peers with one of *roles*."""
        return self._add(server_side=False, roles=roles)

    def _add(self, *, server_side: bool, roles: frozenset[str] | None) -> ReloadingContext:
        check = PeerCheck(self.identity.cluster, roles, on_refusal=self.refused)
        context = reloading(self._make(server_side, check), server_side=server_side)
        self._contexts.append((context, server_side, check))
        return context

    def _make(self, server_side: bool, check: PeerCheck) -> CheckedContext:
        files = self._files
        # Our own processes need no older version.
        minimum = self._minimum if check.roles is None else ssl.TLSVersion.TLSv1_3
        return make_context(
            server_side=server_side, cert=files.cert, key=files.key, ca=files.ca, check=check, minimum=minimum
        )

    # Facts ----------------------------------------------------------------------------------------
    @property
    def identity(self) -> PeerIdentity:
        """This process's identity."""
        return self._loaded.identity

    @property
    def certificate_expires_s(self) -> float:
        """End of the certificate: seconds since 1970."""
        return self._loaded.certificate_expires_s

    @property
    def ca_expires_s(self) -> float:
        """Earliest end of the trusted authorities: seconds since 1970."""
        return self._loaded.ca_expires_s

    def refused(self, refusal: TlsRefusal) -> None:
        """Count a failed handshake. Any thread."""
        self._refusals[refusal] += 1

    def refusals(self) -> dict[str, int]:
        """Failed handshakes by reason, zeros included."""
        return {refusal.value: self._refusals[refusal] for refusal in TlsRefusal}

    # Reloading ------------------------------------------------------------------------------------
    def watch(self) -> None:
        """Read the files every second, in a thread that ends with the process or with `stop`."""
        threading.Thread(target=self._watch, name="tls-files", daemon=True).start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(LOOK_INTERVAL_S):
            self.look()

    def look(self) -> bool:
        """Load changed and usable files; True if they were taken. One thread at a time.
        Sets are written file by file: an unusable one is reported if the next look finds it again.
        """
        contents: tuple[bytes, ...] = ()
        try:
            contents = _read(self._files)
            if contents in {self._loaded.contents, self._told}:
                return False
            loaded = self._load(contents)
            if loaded.identity != self.identity:
                raise TlsUnusable(f"{self._files.cert} belongs to {loaded.identity.uri}, this is {self.identity.uri}.")
            fresh = [self._make(server_side, check) for _, server_side, check in self._contexts]
        except (TlsUnusable, OSError) as error:
            if contents == self._suspect != self._told:
                self._told = contents
                self.failed_reloads += 1
                log.error("a changed certificate, key or trust store cannot be used", extra={"reason": str(error)})
            self._suspect = contents
            return False
        for (context, _, _), newest in zip(self._contexts, fresh, strict=True):
            context.current = newest
        self._loaded, self._suspect, self._told = loaded, None, None
        self.reloads += 1
        log.info("certificate, key or trust store reloaded", extra={"identity": loaded.identity.uri})
        return True

    def _load(self, contents: tuple[bytes, ...]) -> _Loaded:
        """Load a generation. A handshake of the files with themselves finds every error in them."""
        nobody = PeerCheck("", None)
        files = self._files
        ends = []
        try:
            for server_side in (True, False):
                context = make_context(
                    server_side=server_side, cert=files.cert, key=files.key, ca=files.ca, check=nobody
                )
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(files.ca)
                ends.append(context)
            certificate = _shake_hands(*ends)
            identity = identity_of(certificate)
        except (OSError, ValueError) as error:
            reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or reason_of(error)
            raise TlsUnusable(
                f"{files.cert}, {files.key} and {files.ca} cannot be used together ({reason}); "
                "see --tls-cert-file, --tls-key-file, --tls-ca-file, and `ternmq init-cluster --renew`."
            ) from error
        authorities = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in ends[0].get_ca_certs()]
        return _Loaded(
            contents=contents,
            identity=identity,
            certificate_expires_s=float(ssl.cert_time_to_seconds(str(certificate["notAfter"]))),
            ca_expires_s=float(min(authorities, default=0)),
        )


def _read(files: TlsFiles) -> tuple[bytes, ...]:
    """The contents of the three files; TlsUnusable."""
    contents = []
    for option, path in (("--tls-cert-file", files.cert), ("--tls-key-file", files.key), ("--tls-ca-file", files.ca)):
        try:
            with path.open("rb") as file:
                contents.append(file.read(FILE_SIZE_MAX_BYTES))
        except OSError as error:
            raise TlsUnusable(f"{path} ({option}) cannot be read: {error.strerror}.") from error
    return tuple(contents)


def _shake_hands(server: CheckedContext, client: CheckedContext) -> dict[str, object]:
    """The server's certificate after a handshake of both in memory; ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(ends)
    while waiting:
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                continue
    return dict(ends[0].getpeercert() or {})
