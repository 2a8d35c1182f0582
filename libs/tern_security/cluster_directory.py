"""The cluster directory: all secrets of a mesh, made once by `ternmq init-cluster`.

`ternmq up --secure` makes it too.
 DIR/ca.crt                      the authority that every process and client trusts
 DIR/ca.key            (0600)    signs certificates, for init-cluster only: keep it elsewhere
 DIR/cluster.key       (0600)    32 random bytes: links and receipt handles
 DIR/root.key          (0600)    the root bearer key as text: manages everything, sends nothing
 DIR/certs/ROLE/NAME.crt, .key   one pair a process, key 0600, 90 days
                                 ROLE: name-server, broker, proxy, checker, client
Law: existing files are never overwritten, except certificates by a renewal; no secret is printed or
logged; a file appears whole or not at all.
"""

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tern_security.peer_identity import PeerIdentity
from tern_wire.principals.client_keys import root_key_text
from tern_wire.reasons import reason_of

CLUSTER_KEY_SIZE_BYTES = 32
# Every certificate holds these and its own name: clients on the same machine need no option.
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class DirectoryUnusable(ValueError):
    """The directory holds something else, or is incomplete; the text says the fix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFiles:
    """Paths of one process's certificate and key."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A process that needs a certificate, and its hosts beside LOCAL_HOSTS and its own name."""

    role: str
    name: str
    hosts: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Made:
    """Results of a run: paths below the directory, in order."""

    created: list[str] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    kept: int = 0


class ClusterDirectory:
    """The layout. Nothing is touched before `make`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ca_cert, self.ca_key = root / "ca.crt", root / "ca.key"
        self.cluster_key, self.root_key = root / "cluster.key", root / "root.key"
        self.certs = root / "certs"

    def pair(self, role: str, name: str) -> PairFiles:
        """The files of the process *name*."""
        return PairFiles(cert=self.certs / role / f"{name}.crt", key=self.certs / role / f"{name}.key")

    def exists(self) -> bool:
        """Whether an authority exists."""
        return self.ca_cert.is_file()

    def make(self, wanted: Sequence[Wanted], *, cluster: str = "", now_s: float, renew: bool = False) -> Made:
        """Add missing files for *cluster* ("": the existing one) and *wanted*.
        *renew* issues every certificate anew. DirectoryUnusable; OSError.
        """
        # Imported here: callers that only need the paths do not pay for it.
        from tern_security import authority as pki  # noqa: PLC0415

        made = Made()
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.ca_cert.exists() and not self.ca_key.exists():
            if not cluster:
                raise DirectoryUnusable(f"{self.root} holds no authority yet; say which --cluster it is for.")
            fresh = pki.make_authority(PeerIdentity(cluster=cluster, role="broker", name="x").cluster, now_s=now_s)
            self._write(self.ca_key, fresh.key, made, is_secret=True)
            self._write(self.ca_cert, fresh.cert, made)
        try:
            authority = pki.Pair(cert=self.ca_cert.read_bytes(), key=self.ca_key.read_bytes())
            found = pki.cluster_of(authority.cert)
        except (OSError, ValueError) as error:
            raise DirectoryUnusable(
                f"{self.ca_cert} and {self.ca_key} cannot be read ({reason_of(error)}); bring both back, or choose a new directory."
            ) from error
        if cluster and found != cluster:
            raise DirectoryUnusable(
                f"{self.root} belongs to cluster '{found}', not to '{cluster}'; choose another one."
            )
        self._make_secrets(made)
        for each in self._all(wanted, is_renewal=renew):
            identity = PeerIdentity(cluster=found, role=each.role, name=each.name)
            files = self.pair(each.role, each.name)
            is_there = files.cert.exists() and files.key.exists()
            if is_there and not renew:
                made.kept += 1
                continue
            known = pki.read_certificate(files.cert.read_bytes()).hosts if is_there else ()
            hosts = dict.fromkeys((*LOCAL_HOSTS, each.name, *known, *each.hosts))
            issued = pki.issue(authority, identity, list(hosts), now_s=now_s)
            files.cert.parent.mkdir(parents=True, exist_ok=True)
            done = Made()
            self._write(files.key, issued.key, done, is_secret=True, is_new=False)
            self._write(files.cert, issued.cert, done, is_new=False)
            (made.renewed if is_there else made.created).append(str(files.cert.relative_to(self.root)))
        return made

    def _make_secrets(self, made: Made) -> None:
        if not self.cluster_key.exists():
            self._write(self.cluster_key, secrets.token_bytes(CLUSTER_KEY_SIZE_BYTES), made, is_secret=True)
        if not self.root_key.exists():
            self._write(
                self.root_key, root_key_text(self.cluster_key.read_bytes()).encode() + b"\n", made, is_secret=True
            )

    def _all(self, wanted: Sequence[Wanted], *, is_renewal: bool) -> Iterator[Wanted]:
        """*wanted*, and for a renewal every process with a certificate here."""
        asked: Mapping[tuple[str, str], Wanted] = {(each.role, each.name): each for each in wanted}
        yield from asked.values()
        if is_renewal:
            for path in sorted(self.certs.glob("*/*.crt")):
                if (path.parent.name, path.stem) not in asked:
                    yield Wanted(role=path.parent.name, name=path.stem)

    def _write(self, path: Path, data: bytes, made: Made, *, is_secret: bool = False, is_new: bool = True) -> None:
        """Write *path* atomically. *is_new*: it must not exist (FileExistsError)."""
        incoming = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if is_secret else 0o644)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            if is_new:
                os.link(incoming, path)  # unlike a rename, this never replaces a file that another run has just made
            else:
                incoming.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                incoming.unlink()
        made.created.append(str(path.relative_to(self.root)))
