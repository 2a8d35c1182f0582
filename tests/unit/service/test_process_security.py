"""What a process shows of its protection: metrics and the notice of /healthz."""

import json
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from tern_security.contexts import TlsRefusal
from tern_service.plain_app import alive
from tern_service.process_security import UNPROTECTED, ProcessSecurity
from tern_service.protection import NOTICE_INSECURE, NOTICE_OPTIONAL, Protection
from tests.support.pki.cluster_pki import Pki


def metrics(security: ProcessSecurity) -> dict[str, float]:
    """Name (with labels) to value."""
    registry = CollectorRegistry()
    security.register(registry)
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def test_metrics_tell_when_certificates_end_what_became_of_changes_and_who_was_refused(tmp_path: Path) -> None:
    """So that an alarm can be set weeks before a mesh stops."""
    pki = Pki(tmp_path / "c")
    tls = pki.tls("broker", "broker-a-0")
    security = ProcessSecurity(protection=Protection(requires_keys=True, has_tls=True), tls=tls)
    pki.write(pki.files("broker", "broker-a-0"), pki.renewed("broker", "broker-a-0", days=1))
    tls.look()
    security.refused(TlsRefusal.LATE)
    found = metrics(security)
    assert found["ternmq_tls_certificate_expiry_timestamp_seconds"] == tls.certificate_expires_s
    assert found["ternmq_tls_authority_expiry_timestamp_seconds"] == tls.ca_expires_s
    assert found["ternmq_tls_reloads_total"] == 1
    assert found["ternmq_tls_failed_reloads_total"] == 0
    assert {name: value for name, value in found.items() if "refused" in name and value} == {
        'ternmq_tls_refused_handshakes_total{reason="late"}': 1
    }
    assert found["ternmq_insecure"] == 0


def test_without_tls_only_insecurity_is_a_metric() -> None:
    """No expiry of nothing, which would look like 1970."""
    assert metrics(UNPROTECTED) == {"ternmq_insecure": 0}
    open_to_all = Protection(requires_keys=False, has_tls=False, is_insecure=True, notice=NOTICE_INSECURE)
    assert metrics(ProcessSecurity(protection=open_to_all)) == {"ternmq_insecure": 1}


def test_health_tells_the_notice_to_who_asks_and_insecurity_to_everybody() -> None:
    """`?verbose` has what runs here; the short answer stays constant unless it must shout."""
    _, _, body = alive(UNPROTECTED.info(service="x"), is_verbose=False)
    assert json.loads(body) == {"status": "alive"}
    _, _, body = alive(UNPROTECTED.info(service="x"), is_verbose=True)
    assert json.loads(body)["notice"] == NOTICE_OPTIONAL
    open_to_all = Protection(requires_keys=False, has_tls=False, is_insecure=True, notice=NOTICE_INSECURE)
    _, _, body = alive(ProcessSecurity(protection=open_to_all).info(), is_verbose=False)
    assert json.loads(body)["notice"] == NOTICE_INSECURE
