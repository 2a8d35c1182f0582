"""What the API document says of credentials and permissions: the two schemes, and for each
operation what the table of requirements asks.

    "security": either scheme, or none where the mesh requires no credentials (loopback only)
    "x-required-permissions": ["PUB topic {topic}", ...], as core/access/requirements.py writes them

Imported with the first request of /openapi.json.
"""

from typing import Any

from tern_proxy.core.access.requirements import Rule

Document = dict[str, Any]
_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "mqk_<kid>_<secret>",
        "description": "A key of `ternmq key create`. Over TLS, or to a proxy on this machine.",
    },
    "signature": {
        "type": "apiKey",
        "in": "header",
        "name": "Signature-Input",
        "description": (
            "A request signed with an Ed25519 key (RFC 9421): @method, @path, @query, @authority, and content-digest where there is a "
            "body; with `created` (within 300 s), `keyid` (the kid), `nonce` (8 to 64 characters, used once) and, if at all, `alg` `ed25519`."
        ),
    },
}


def security_of(rule: Rule) -> Document:
    """Return the security members of an operation."""
    if rule.is_anonymous:
        return {"security": []}
    return {
        "security": [{name: []} for name in _SCHEMES] + [{}],
        "x-required-permissions": [str(requirement) for requirement in rule.requirements],
    }


def schemes() -> Document:
    """Return the content of `components/securitySchemes`."""
    return {name: dict(scheme) for name, scheme in _SCHEMES.items()}
