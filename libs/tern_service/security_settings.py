"""Every service's settings for TLS and authentication; the rule to start is in protection.py."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tern_security.tls import ClusterTls, TlsFiles, TlsUnusable
from tern_service.protection import AUTO, OFF, REQUIRED, UNDERSTOOD, Protection, protection_of
from tern_service.settings import refuse, setting

if TYPE_CHECKING:
    from tern_service.process_security import ProcessSecurity


_VERSIONS = {"1.3": ssl.TLSVersion.TLSv1_3, "1.2": ssl.TLSVersion.TLSv1_2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuritySettings:
    """Base of every service's settings.
    Subclasses call `check_security` in their `__post_init__`.
    """

    tls_cert_file: str = setting("", help="PEM file of this process's certificate; with key and CA, or none of them")
    tls_key_file: str = setting("", help="PEM file of its key, without a passphrase, mode 0600")
    tls_ca_file: str = setting("", help="PEM file of the cluster's authority, whose processes are trusted")
    tls_min_version: str = setting("1.3", help="oldest TLS version for clients: 1.3 or 1.2")
    auth: str = setting(
        AUTO, help="auto: clients need keys unless every listener is on loopback; required: they do; off: they do not"
    )
    insecure_no_auth: str = setting(
        "", help=f"{UNDERSTOOD}: listen beyond loopback without authentication or TLS: every client may read and write"
    )

    def check_security(self) -> None:
        """Raise ValueError for contradictory settings."""
        files = (self.tls_cert_file, self.tls_key_file, self.tls_ca_file)
        if any(files) and not all(files):
            raise ValueError("--tls-cert-file, --tls-key-file and --tls-ca-file go together; give all three, or none.")
        if self.auth not in {AUTO, REQUIRED, OFF}:
            raise ValueError(f"--auth is '{self.auth}'; use auto, required or off.")
        if self.insecure_no_auth not in {"", UNDERSTOOD}:
            raise ValueError(
                f"--insecure-no-auth is '{self.insecure_no_auth}'; the only text that it takes is {UNDERSTOOD}."
            )
        if self.tls_min_version not in _VERSIONS:
            raise ValueError(f"--tls-min-version is '{self.tls_min_version}'; use 1.3 or 1.2.")

    @property
    def has_tls(self) -> bool:
        """Whether certificates are set."""
        return bool(self.tls_cert_file)

    def protection(self, *listens: str) -> Protection:
        """Call `protection_of` for listeners on *listens*; SettingsError (exit 78)."""
        try:
            return protection_of(self, listens)
        except ValueError as error:
            refuse(str(error))

    def open_security(self, role: str, *listens: str, name: str = "") -> "ProcessSecurity":
        """Open the security of a process with *role* that listens on *listens*; SettingsError (exit
        78).
        *name*: the required name in its certificate, "" for any.
        """
        from tern_service.process_security import ProcessSecurity  # noqa: PLC0415 (not for --help)

        return ProcessSecurity(protection=self.protection(*listens), tls=self.open_tls(role, name))

    def open_tls(self, role: str, name: str = "") -> ClusterTls | None:
        """Open this process's TLS and watch its files; None without certificates.
        SettingsError (exit 78).
        """
        if not self.has_tls:
            return None
        files = TlsFiles(cert=Path(self.tls_cert_file), key=Path(self.tls_key_file), ca=Path(self.tls_ca_file))
        if files.key.is_file() and files.key.stat().st_mode & 0o077:
            refuse(f"The key {files.key} (--tls-key-file) can be read by others; run: chmod 600 {files.key}")
        try:
            tls = ClusterTls(files, role=role, name=name, minimum=_VERSIONS[self.tls_min_version])
        except TlsUnusable as error:
            refuse(str(error))
        tls.watch()
        return tls

    def check_urls(self, option: str, urls: Sequence[str]) -> None:
        """Raise ValueError for an unusable name server URL, or a plain one in a process with
        TLS.
        """
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"'{url}' ({option}) is not a URL; write it like http://127.0.0.1:9876.")
            if self.has_tls and not url.startswith("https://"):
                raise ValueError(f"'{url}' ({option}) is plain; with --tls-cert-file name servers need https://.")
