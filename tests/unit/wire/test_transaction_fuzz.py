"""Hostile ids of transactions, check URLs and bodies of producer groups: what passes is exactly what it says, the rest is refused in its type."""

import contextlib
import random
from ipaddress import ip_address

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tern_proxy.core.documents.producer_groups import ProducerGroupSettings
from tern_proxy.core.transactions.producer_groups import producer_change
from tern_wire.checks.urls import CheckHosts
from tern_wire.errors import CheckUrlForbidden, TernError, TransactionIdInvalid
from tern_wire.link.codec import encode_json, read_json
from tern_wire.settings.producer_settings import SETTINGS, read_producer_change
from tern_wire.transactions import TransactionId, TransactionIds
from tests.fuzz.mutations import bend
from tests.support.checker.forbidden_urls import FORBIDDEN

SEEDS = st.integers(0, 1 << 40)
IDS, OTHER_IDS = TransactionIds(bytes(range(32))), TransactionIds(bytes(range(1, 33)))
HOSTS = CheckHosts.parse("127.0.0.1,10.1.0.0/16,hooks.example.com:*,*.example.org,[::1]", is_http_allowed=True)
URLS = [
    *("https://hooks.example.com/checks?a=b%20c", "http://127.0.0.1:9000/c", "http://[::1]:9000/", "http://10.1.2.3/x"),
    *("https://a.b.example.org:8443/", *(url for urls in FORBIDDEN.values() for url in urls)),
]
GOOD_BODY = {
    "check_url": "http://127.0.0.1:9000/c",
    "check_secret": "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY",
    "timeout": "3s",
    "max_checks": 5,
    "check_after": "1m",
    "check_interval": 10_000,
    "include_body": True,
}


def bent_text(text: str, seed: int) -> str:
    """*text* with a few bytes changed, cut out, put in or repeated."""
    return bend(text.encode("latin-1", "replace"), random.Random(seed)).decode("latin-1")


@settings(max_examples=2_000, deadline=None)
@given(number=st.integers(1, (1 << 62) - 1), group_id=st.integers(0, (1 << 32) - 1), seed=SEEDS)
def test_a_bent_id_is_the_same_transaction_or_none(number: int, group_id: int, seed: int) -> None:
    """Never another one: a MAC stands over all of it. An id of another cluster is none, whole or bent."""
    transaction = TransactionId("broker-a", number, group_id)
    text = bent_text(IDS.make(transaction), seed)
    with contextlib.suppress(TransactionIdInvalid):
        assert IDS.read(text) == transaction
    for foreign in (OTHER_IDS.make(transaction), bent_text(OTHER_IDS.make(transaction), seed)):
        try:
            IDS.read(foreign)
        except TransactionIdInvalid:
            continue
        raise AssertionError(foreign)


@settings(max_examples=1_500, deadline=None)
@given(url=st.sampled_from(URLS), seed=SEEDS)
def test_a_url_that_passes_leads_where_the_list_says_and_nowhere_else(url: str, seed: int) -> None:
    """Bent good and forged ones: its host is listed, its path is one that cannot split a request; all others are check-url-forbidden."""
    text = bent_text(url, seed)
    try:
        found = HOSTS.require_allowed(text)
    except CheckUrlForbidden as error:
        assert error.fields["reason"]
        return
    assert found.scheme in {"http", "https"}
    assert 0 < found.port < 65_536
    assert found.path.startswith("/")
    for part in (found.path, found.authority, found.host):
        assert part.isascii()
        assert part.isprintable()
        assert " " not in part
    if found.address is None:
        assert found.host == "hooks.example.com" or found.host.endswith(".example.org")
    else:
        address = ip_address(found.host)
        assert address.is_loopback or found.host.startswith("10.1.")


@settings(max_examples=1_000, deadline=None)
@given(
    text=st.text(max_size=80) | SEEDS.map(lambda seed: bent_text("127.0.0.1:*,*.example.org,10.0.0.0/8,[::1]:80", seed))
)
def test_a_list_of_hosts_is_read_or_refused_as_a_whole(text: str) -> None:
    """ValueError, which ends a process at its start; never a list that allows a metadata address."""
    try:
        hosts = CheckHosts.parse(text)
    except ValueError:
        return
    for url in ("http://169.254.169.254/latest", "http://[fd00:ec2::254]/"):
        try:
            hosts.require_allowed(url)
        except CheckUrlForbidden:
            continue
        raise AssertionError(text)


@settings(max_examples=2_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=SEEDS, name=st.sampled_from(["shop", "", "a b", "x" * 200]) | st.text(max_size=12), is_bent=st.booleans())
def test_a_body_of_a_producer_group_is_read_or_refused_in_its_type(seed: int, name: str, is_bent: bool) -> None:
    """Bent JSON, wrong names; what passes is a change that every broker group reads as it is."""
    rng = random.Random(seed)
    document = {field: value for field, value in GOOD_BODY.items() if rng.random() < 0.7}
    body = encode_json(document)
    try:
        change = producer_change(name, read_json(bend(body, rng) if is_bent else body, ProducerGroupSettings))
    except TernError as error:
        assert 400 <= error.status < 500, error
        return
    assert read_producer_change(change.packed()) == change
    assert set(change.settings) <= set(SETTINGS)
