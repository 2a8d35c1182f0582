"""The start-up rule: what may listen where, and what is refused with which names."""

import dataclasses

import pytest

from tern_service.protection import NOTICE_INSECURE, NOTICE_OPTIONAL, Protection, is_loopback, protection_of
from tern_service.security_settings import SecuritySettings
from tern_service.settings import SettingsError, load_settings

TLS = {"tls_cert_file": "c", "tls_key_file": "k", "tls_ca_file": "a"}
LOOPBACKS = ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost"]
OTHERS = [
    "0.0.0.0",
    "::",
    "10.0.0.1",
    "192.168.1.1",
    "::ffff:127.0.0.1",
    "fe80::1",
    "8.8.8.8",
    "127.0.0.1.",
    "mq.example.com",
]


@pytest.mark.parametrize("listen", LOOPBACKS)
@pytest.mark.parametrize("auth", ["auto", "off"])
def test_on_loopback_credentials_are_optional_with_a_notice(listen: str, auth: str) -> None:
    """A laptop's mesh needs nothing."""
    found = protection_of(SecuritySettings(auth=auth), [listen])
    assert found == Protection(requires_keys=False, has_tls=False, notice=NOTICE_OPTIONAL)


def test_on_loopback_keys_may_be_required() -> None:
    """Without TLS too: nobody else hears what goes over loopback."""
    found = protection_of(SecuritySettings(auth="required"), ["127.0.0.1"])
    assert (found.requires_keys, found.has_tls, found.notice) == (True, False, "")


@pytest.mark.parametrize("listen", ["0.0.0.0", "::", "10.0.0.1", "::ffff:127.0.0.1"])
@pytest.mark.parametrize("auth", ["auto", "required"])
def test_beyond_loopback_keys_and_tls_are_required(listen: str, auth: str) -> None:
    """With certificates it starts, and requires keys whether told so or not."""
    found = protection_of(SecuritySettings(auth=auth, **TLS), [listen])
    assert found == Protection(requires_keys=True, has_tls=True)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (SecuritySettings(), ["--tls-cert-file", "--tls-key-file", "--tls-ca-file"]),
        (SecuritySettings(auth="required"), ["--tls-cert-file"]),
        (SecuritySettings(auth="off", **TLS), ["--auth off"]),
        (SecuritySettings(auth="off"), ["--auth off", "--tls-cert-file"]),
    ],
)
def test_beyond_loopback_a_process_without_both_does_not_start(settings: SecuritySettings, named: list[str]) -> None:
    """The refusal names the settings that are missing, the address, and the way back."""
    with pytest.raises(ValueError) as refused:
        protection_of(settings, ["127.0.0.1", "10.0.0.1"])
    for text in (*named, "10.0.0.1", "--listen", "127.0.0.1"):
        assert text in str(refused.value)


def test_one_listener_beyond_loopback_is_enough() -> None:
    """However many others are not."""
    with pytest.raises(ValueError):
        protection_of(SecuritySettings(), ["127.0.0.1", "::1", "0.0.0.0"])


@pytest.mark.parametrize("settings", [SecuritySettings(insecure_no_auth="I-UNDERSTAND"),
                                      SecuritySettings(insecure_no_auth="I-UNDERSTAND", auth="off", **TLS)])  # fmt: skip
def test_who_understands_may_leave_everything_open_and_is_told_so(settings: SecuritySettings) -> None:
    """The escape shouts."""
    found = protection_of(settings, ["0.0.0.0"])
    assert found.is_insecure
    assert not found.requires_keys
    assert found.notice == NOTICE_INSECURE


def test_the_escape_takes_nothing_from_a_process_that_is_protected() -> None:
    """With keys and TLS it means nothing."""
    found = protection_of(SecuritySettings(insecure_no_auth="I-UNDERSTAND", **TLS), ["0.0.0.0"])
    assert found == Protection(requires_keys=True, has_tls=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"insecure_no_auth": "yes"},
        {"insecure_no_auth": "i-understand"},
        {"auth": "on"},
        {"tls_cert_file": "c"},
        {"tls_cert_file": "c", "tls_key_file": "k"},
        {"tls_ca_file": "a"},
        {"tls_min_version": "1.1"},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(changes: dict[str, str]) -> None:
    """Half of a pair, and words that are nearly right."""
    with pytest.raises(ValueError):
        SecuritySettings(**changes).check_security()


@pytest.mark.parametrize("listen", LOOPBACKS)
def test_loopback_is_loopback(listen: str) -> None:
    """In every spelling that a setting takes."""
    assert is_loopback(listen)


@pytest.mark.parametrize("listen", OTHERS)
def test_nothing_else_is(listen: str) -> None:
    """A name could become another address tomorrow, so it is refused; an address in IPv6's clothes counts as another one."""
    try:
        assert not is_loopback(listen)
    except ValueError as refused:
        assert listen in str(refused)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Settings(SecuritySettings):
    listen: str = "127.0.0.1"

    def __post_init__(self) -> None:
        self.check_security()


def test_the_settings_are_those_of_every_service() -> None:
    """From variables and options like all others; a refusal is exit code 78."""
    loaded = load_settings(_Settings, prefix="T_", environ={"T_AUTH": "required", "T_LISTEN": "0.0.0.0"}, arguments=[])
    with pytest.raises(SettingsError) as refused:
        loaded.protection(loaded.listen)
    assert refused.value.code == 78


def test_with_certificates_name_servers_are_asked_by_https_only() -> None:
    """A plain URL would send registrations and routes in the clear."""
    SecuritySettings(**TLS).check_urls("--namesrv", ["https://n:1"])
    SecuritySettings().check_urls("--namesrv", ["http://n:1", "https://n:1"])
    with pytest.raises(ValueError, match="http://n:1"):
        SecuritySettings(**TLS).check_urls("--namesrv", ["https://n:2", "http://n:1"])
    with pytest.raises(ValueError):
        SecuritySettings().check_urls("--namesrv", ["n:1"])
