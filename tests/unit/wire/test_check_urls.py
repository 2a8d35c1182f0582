"""Which URLs may be called: a corpus of forged ones, each refused for its reason; what may pass; how a list of hosts is read."""

import pytest

from tern_wire.checks.urls import CheckHosts, CheckUrl
from tern_wire.errors import CheckUrlForbidden
from tests.support.checker.forbidden_urls import EVERYTHING, FORBIDDEN

ALL = CheckHosts.parse(EVERYTHING, is_http_allowed=True)
CORPUS = [(url, reason) for reason, urls in FORBIDDEN.items() for url in urls]


def reason_against(hosts: CheckHosts, url: str) -> str:
    """Why *url* is refused; "" when it may be called."""
    try:
        hosts.require_allowed(url)
    except CheckUrlForbidden as error:
        return str(error.fields["reason"])
    return ""


def reason_against_address(hosts: CheckHosts, url: str, address: str) -> str:
    """Why *url*, which may be called, must not be called at *address*; "" when it may."""
    try:
        hosts.require_address(hosts.require_allowed(url), address)
    except CheckUrlForbidden as error:
        return str(error.fields["reason"])
    return ""


@pytest.mark.parametrize(("url", "reason"), CORPUS, ids=[f"{at}" for at in range(len(CORPUS))])
def test_a_forged_url_is_refused_for_its_reason(url: str, reason: str) -> None:
    """Although every address and the names in it are listed; and without a list, too."""
    assert reason in reason_against(ALL, url), url
    assert reason_against(CheckHosts(), url), url


def test_the_corpus_is_large_and_has_no_form_twice() -> None:
    """At least 200 forms."""
    assert len({url for url, _ in CORPUS}) == len(CORPUS) >= 200


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://hooks.example.com", ("https", "hooks.example.com", 443, "/")),
        ("HTTPS://Hooks.EXAMPLE.com/A?b=C%20d", ("https", "hooks.example.com", 443, "/A?b=C%20d")),
        ("https://hooks.example.com?x=1", ("https", "hooks.example.com", 443, "/?x=1")),
        ("https://hooks.example.com:8443/check", ("https", "hooks.example.com", 8443, "/check")),
        ("http://127.0.0.1:9000/check", ("http", "127.0.0.1", 9000, "/check")),
        ("http://localhost:9000/", ("http", "localhost", 9000, "/")),
        ("http://[::1]:9000/x", ("http", "::1", 9000, "/x")),
        ("http://[0:0:0:0:0:0:0:1]/x", ("http", "::1", 80, "/x")),
        ("http://10.1.2.3/", ("http", "10.1.2.3", 80, "/")),
        ("http://172.31.255.255/", ("http", "172.31.255.255", 80, "/")),
        ("http://169.254.1.1/", ("http", "169.254.1.1", 80, "/")),
        ("http://[fd00::5]/", ("http", "fd00::5", 80, "/")),
        ("https://8.8.8.8/", ("https", "8.8.8.8", 443, "/")),
        ("https://[2606:4700::1111]/", ("https", "2606:4700::1111", 443, "/")),
        ("https://xn--bcher-kva.example.com/", ("https", "xn--bcher-kva.example.com", 443, "/")),
        (
            "https://a.example.com/@me/%2e%2e/x;y=1,2!$&'()*+",
            ("https", "a.example.com", 443, "/@me/%2e%2e/x;y=1,2!$&'()*+"),
        ),
    ],
)
def test_an_allowed_url_is_read_into_one_spelling(url: str, expected: tuple[str, str, int, str]) -> None:
    """Host in lower case, the port set, path and query as they were."""
    scheme, host, port, path = expected
    assert ALL.require_allowed(url) == CheckUrl(scheme=scheme, host=host, port=port, path=path)


@pytest.mark.parametrize(
    ("hosts", "allowed", "refused"),
    [
        ("", [], ["https://a.example.com/", "http://127.0.0.1/", "https://8.8.8.8/"]),
        ("a.example.com", ["https://a.example.com/", "https://a.example.com:80/", "https://a.example.com:1024/"],
         ["https://b.example.com/", "https://x.a.example.com/", "https://example.com/", "https://a.example.com:22/", "https://a.example.com:1023/", "https://a.example.com.evil.com/", "https://evila.example.com/"]),
        ("a.example.com:8443", ["https://a.example.com:8443/"], ["https://a.example.com/", "https://a.example.com:8444/"]),
        ("a.example.com:*", ["https://a.example.com:22/", "https://a.example.com/"], ["https://b.example.com:22/"]),
        ("*.example.com", ["https://a.example.com/", "https://a.b.example.com:9000/"], ["https://example.com/", "https://aexample.com/", "https://a.example.com:25/"]),
        ("*.example.com:8443", ["https://a.example.com:8443/"], ["https://a.example.com/"]),
        ("127.0.0.1", ["http://127.0.0.1:9000/", "http://127.0.0.1/"], ["http://127.0.0.2:9000/", "http://localhost:9000/", "http://[::1]:9000/", "http://127.0.0.1:22/"]),
        ("[::1]", ["http://[::1]:9000/"], ["http://127.0.0.1:9000/", "http://[::1]:25/"]),
        ("::1", ["http://[::1]:9000/"], ["http://127.0.0.1:9000/"]),
        ("[::1]:9000", ["http://[::1]:9000/"], ["http://[::1]:9001/"]),
        ("10.1.0.0/16", ["http://10.1.255.255/"], ["http://10.2.0.0/", "http://10.0.255.255/", "https://a.example.com/"]),
        ("10.1.0.0/16:8443,192.168.1.1:*", ["https://10.1.2.3:8443/", "http://192.168.1.1:81/"], ["http://10.1.2.3/", "http://192.168.1.2/"]),
        ("[fd00::/8]", ["http://[fd12::1]/"], ["http://[fc00::1]/", "http://[fd00:ec2::254]/"]),
        ("fd00::/8", ["http://[fd12::1]/"], ["http://[fc00::1]/"]),
        ("0.0.0.0/0", ["https://8.8.8.8/", "http://10.0.0.1/"], ["http://169.254.169.254/", "http://224.0.0.1/", "https://a.example.com/"]),
        (" A.Example.COM , 127.0.0.1 ,, ", ["https://a.example.com/", "http://127.0.0.1/"], ["https://b.example.com/"]),
    ],
)  # fmt: skip
def test_only_what_is_listed_may_be_called(hosts: str, allowed: list[str], refused: list[str]) -> None:
    """Names, ports, names below a name, addresses and networks."""
    found = CheckHosts.parse(hosts, is_http_allowed=True)
    assert [url for url in allowed if reason_against(found, url)] == []
    assert [url for url in refused if not reason_against(found, url)] == []


@pytest.mark.parametrize(
    ("hosts", "url", "address", "reason"),
    [
        ("a.example.com", "https://a.example.com/", "93.184.216.34", ""),
        ("a.example.com", "https://a.example.com/", "2606:2800:220:1::1", ""),
        ("a.example.com", "http://a.example.com/", "93.184.216.34", "https only"),
        ("a.example.com", "https://a.example.com/", "127.0.0.1", "a loopback address that is not listed"),
        ("a.example.com", "https://a.example.com/", "::1", "a loopback address that is not listed"),
        ("a.example.com", "https://a.example.com/", "10.0.0.1", "a private address that is not listed"),
        ("a.example.com", "https://a.example.com/", "172.16.0.1", "a private address that is not listed"),
        ("a.example.com", "https://a.example.com/", "192.168.0.1", "a private address that is not listed"),
        ("a.example.com", "https://a.example.com/", "100.64.0.1", "a private address that is not listed"),
        ("a.example.com", "https://a.example.com/", "169.254.1.1", "a link-local address that is not listed"),
        ("a.example.com", "https://a.example.com/", "fd00::1", "a private address that is not listed"),
        ("a.example.com:*", "https://a.example.com/", "fe80::1%eth0", "link-local"),
        ("a.example.com,0.0.0.0/0", "https://a.example.com/", "169.254.169.254", "metadata"),
        ("a.example.com,::/0", "https://a.example.com/", "::ffff:127.0.0.1", "an IPv4 address in IPv6"),
        ("a.example.com,10.0.0.0/8", "http://a.example.com/", "10.0.0.1", ""),
        ("a.example.com,10.0.0.0/8:8443", "https://a.example.com/", "10.0.0.1", "a private address that is not listed"),
        ("a.example.com:*,10.0.0.0/8:8443", "https://a.example.com:8443/", "10.0.0.1", ""),
        ("a.example.com,10.0.0.0/8", "http://a.example.com/", "11.0.0.1", "https only"),
        ("localhost", "http://localhost:9000/", "127.0.0.1", "a loopback address that is not listed"),
        ("localhost,127.0.0.1", "http://localhost:9000/", "127.0.0.1", ""),
        ("localhost,127.0.0.1", "http://localhost:9000/", "::1", "a loopback address that is not listed"),
        ("127.0.0.1,localhost,[::1]", "http://localhost:9000/", "::1", ""),
        ("a.example.com", "https://a.example.com/", "not an address", "is no address"),
        ("a.example.com", "https://a.example.com/", "", "is no address"),
    ],
)
def test_an_address_that_a_name_resolves_to_is_checked_by_itself(
    hosts: str, url: str, address: str, reason: str
) -> None:
    """A name is trusted for public addresses only; others are listed apart."""
    found = reason_against_address(CheckHosts.parse(hosts, is_http_allowed=True), url, address)
    assert (reason in found) if reason else (not found), found


@pytest.mark.parametrize(
    ("hosts", "url", "is_allowed"),
    [
        ("10.1.0.0/16", "http://10.1.2.3/", False),
        ("10.1.0.0/16:*", "http://10.1.2.3:9000/", False),
        ("172.16.0.0/12,192.168.0.0/16", "http://192.168.1.1/", False),
        ("169.254.0.0/16", "http://169.254.1.1/", False),
        ("[fd00::/8]", "http://[fd12::1]/", False),
        ("0.0.0.0/0", "http://100.64.0.1/", False),
        ("shop.example.com,10.1.0.0/16", "http://shop.example.com/", False),
        ("10.1.0.0/16", "https://10.1.2.3/", True),
        ("[fd00::/8]", "https://[fd12::1]/", True),
        ("shop.example.com,10.1.0.0/16", "https://shop.example.com/", True),
        ("127.0.0.1", "http://127.0.0.1:9000/", True),
        ("127.0.0.0/8", "http://127.9.9.9/", True),
        ("[::1]", "http://[::1]/", True),
        ("localhost,127.0.0.1", "http://localhost:9000/", True),
        ("localhost,[::1]", "http://localhost:9000/", True),
    ],
)
def test_private_hosts_are_called_by_http_only_where_that_is_said(hosts: str, url: str, is_allowed: bool) -> None:
    """Whoever is on the way reads the messages: the refusal names the setting. Nobody is on the way to this machine."""
    found = reason_against(CheckHosts.parse(hosts), url)
    assert bool(found) is not is_allowed, found
    assert is_allowed or ("by http" in found and "--check-http" in found and "TERNMQ_CHECK_HTTP" in found)
    assert not reason_against(CheckHosts.parse(hosts, is_http_allowed=True), url)


def test_a_name_that_leads_to_a_private_host_is_not_called_by_http_either() -> None:
    """The URL may pass, since it could lead to this machine; its address does not. A public one never does, whatever is said."""
    hosts = "shop.example.com,10.1.0.0/16,127.0.0.1"
    private, mixed = CheckHosts.parse(hosts), CheckHosts.parse(hosts, is_http_allowed=True)
    url = "http://shop.example.com/"
    assert "--check-http" in reason_against_address(private, url, "10.1.2.3")
    assert not reason_against_address(private, url, "127.0.0.1")
    assert not reason_against_address(mixed, url, "10.1.2.3")
    assert "https only" in reason_against_address(mixed, url, "93.184.216.34")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("*", "'*' is no host"),
        ("*.*.example.com", "is no host"),
        ("a.*.example.com", "is no host"),
        ("https://a.example.com", "https://a.example.com"),
        ("a_b.example.com", "is no host"),
        ("a.example.com.", "is no host"),
        ("127.1", "is no host"),
        ("0x7f000001", "is no host"),
        ("10.1.0.0/8", "is no host"),
        ("10.0.0.0/33", "is no host"),
        ("a.example.com:0", "no port"),
        ("a.example.com:65536", "no port"),
        ("a.example.com:", "no port"),
        ("[::1", "brackets"),
        ("[::1]9000", "brackets"),
        ("[fe80::1%eth0]", "is no host"),
        ("169.254.169.254", "metadata"),
        ("ok.example.com,169.254.169.254/32:80", "metadata"),
        ("224.0.0.0/8", "multicast"),
        ("::ffff:0:0/96", "IPv4 address in IPv6"),
        ("[::]", "unspecified"),
    ],
)
def test_a_list_that_cannot_be_one_is_refused_with_the_entry(text: str, said: str) -> None:
    """One sentence: a process refuses to start with it. What would never be called cannot be listed."""
    with pytest.raises(ValueError, match=r"\.$") as refused:
        CheckHosts.parse(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("url", "authority"),
    [
        ("https://a.example.com:443/", "a.example.com"),
        ("http://localhost:80/", "localhost"),
        ("https://a.example.com:80/", "a.example.com:80"),
        ("http://[::1]:9000/", "[::1]:9000"),
        ("http://[::1]/", "[::1]"),
    ],
)
def test_the_host_header_names_a_port_only_where_it_must(url: str, authority: str) -> None:
    """As browsers do; IPv6 in brackets."""
    assert ALL.require_allowed(url).authority == authority
