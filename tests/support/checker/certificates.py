"""A certificate authority's certificate and a producer's, for tests of callbacks over TLS: of hooks.example.com and 127.0.0.1, good until 2120.

Made once with openssl (P-256); the authority's key was thrown away. The producer's key protects nothing, so it may stand here.
"""

import ssl
from pathlib import Path

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBczCCARmgAwIBAgIBATAKBggqhkjOPQQDAjAgMR4wHAYDVQQDDBVUZXJuTVEg
dGVzdCBhdXRob3JpdHkwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBa
MCAxHjAcBgNVBAMMFVRlcm5NUSB0ZXN0IGF1dGhvcml0eTBZMBMGByqGSM49AgEG
CCqGSM49AwEHA0IABDzrumaBnVmu/jJY9SVM4EGVPTqugcq5RILleIauWoZx/Feu
mqa7hiX/L4lkX0cf2QsRfi9hP8AT3zXwWMzBE5OjQjBAMA8GA1UdEwEB/wQFMAMB
Af8wDgYDVR0PAQH/BAQDAgIEMB0GA1UdDgQWBBQ3hEUmyjYYbYqwm1kl/RPGMn/T
YjAKBggqhkjOPQQDAgNIADBFAiEAp+AIpE9j4xdlTR5IPLU9qPST+zU7Nlq7ndaV
xgOsMa4CIHlcGmwf/e2kXdWmw43ht2v5sc53oszGjesW7AkCV742
-----END CERTIFICATE-----
"""

PRODUCER = """\
-----BEGIN CERTIFICATE-----
MIIBwzCCAWigAwIBAgIBAjAKBggqhkjOPQQDAjAgMR4wHAYDVQQDDBVUZXJuTVEg
dGVzdCBhdXRob3JpdHkwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBa
MBwxGjAYBgNVBAMMEWhvb2tzLmV4YW1wbGUuY29tMFkwEwYHKoZIzj0CAQYIKoZI
zj0DAQcDQgAE44f+TQg2r//RsQvUXHd2GZ67Anm55kNMeS0KN3p991Kbzlzwz51s
PLXyFKpO8GEi7b+xBwz4gG0jgsav9GuujaOBlDCBkTAJBgNVHRMEAjAAMCIGA1Ud
EQQbMBmCEWhvb2tzLmV4YW1wbGUuY29thwR/AAABMAsGA1UdDwQEAwIHgDATBgNV
HSUEDDAKBggrBgEFBQcDATAfBgNVHSMEGDAWgBQ3hEUmyjYYbYqwm1kl/RPGMn/T
YjAdBgNVHQ4EFgQUlwLHBPNBFE7Ub+dHI3QkTDeA1QAwCgYIKoZIzj0EAwIDSQAw
RgIhANTRrfA5zflRTj1xpyaAcrmuVE4Ryh/8VAkznr2Bh/qxAiEAmAJY0cDdmBWJ
7s4LSKFzYXhL/vO31mJ5YEoH5JU1trw=
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgrwINsJyXe19e2eB9
GBl+YemWgMKb6vfQ5js2+ImGEt6hRANCAATjh/5NCDav/9GxC9Rcd3YZnrsCebnm
Q0x5LQo3en33UpvOXPDPnWw8tfIUqk7wYSLtv7EHDPiAbSOCxq/0a66N
-----END PRIVATE KEY-----
"""


def write_authority(folder: Path) -> Path:
    """A file of what is to be trusted."""
    path = folder / "authority.pem"
    path.write_text(AUTHORITY)
    return path


def producer_context(folder: Path) -> ssl.SSLContext:
    """What a producer serves with."""
    path = folder / "producer.pem"
    path.write_text(PRODUCER)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(path)
    return context
