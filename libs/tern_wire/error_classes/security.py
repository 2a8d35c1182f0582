"""The errors of authentication, authorization and quotas. Imported from errors.py, where the table
of all errors is.

Law: what an error says of a key, a principal or a grant is the same whatever was wrong with it; why
is for the audit log. What depends on the text of the request alone may differ (HmacNotAccepted).
"""

from tern_wire.tern_error import TernError


class Unauthenticated(TernError):
    code, status, title = "unauthenticated", 401, "The request has no valid credentials"
    fix = (
        "Send 'Authorization: Bearer <key>' with a key that is valid now and from here, or sign the request with one (RFC 9421). "
        "Keys are made with: ternmq key create."
    )


class HmacNotAccepted(Unauthenticated):
    """A signature with hmac-sha256. The code is that of Unauthenticated, which clients of earlier
    builds have: only those sign so.
    """

    fix = (
        "The request is signed with hmac-sha256, which is not accepted any more. Make an Ed25519 key (ternmq key create PRINCIPAL --type ed25519 --out FILE) or a bearer "
        "key, give it to the client, and revoke the HMAC key."
    )


class Forbidden(TernError):
    code, status, title = "forbidden", 403, "The principal may not do this"
    fix = "This needs {required_permission}. Ask an administrator for it: ternmq acl grant."


class CertificateForbidden(TernError):
    code, status, title = "certificate-forbidden", 403, "This takes another certificate"
    fix = "It takes the certificate of {required}. Certificates are made with: ternmq init-cluster."


class TooManyFailures(TernError):
    code, status, retryable, title = "too-many-failures", 429, True, "Too many requests with wrong credentials"
    fix = "More than {limit} requests a minute from this address with this key were refused. Correct the key, wait, and repeat."


class QuotaExceeded(TernError):
    code, status, retryable, title = "quota-exceeded", 429, True, "The principal's quota is used up"
    fix = (
        "The quota is {limit} {unit} at each proxy. Repeat after Retry-After, or ask an administrator for a larger one."
    )


class PrincipalNotFound(TernError):
    code, status, title = "principal-not-found", 404, "The principal does not exist"
    fix = "Principal '{principal}' does not exist. Create it: PUT /v1/principals/{principal}, or `ternmq key create {principal}`."


class ClientKeyNotFound(TernError):
    code, status, title = "client-key-not-found", 404, "The principal has no such key"
    fix = "Principal '{principal}' has no key '{kid}': it never had, or it was revoked. List its keys: `ternmq key ls {principal}`."


class PrincipalChanged(TernError):
    code, status, title = "principal-changed", 409, "The principal has changed"
    fix = "Principal '{principal}' is at version {actual}, expected {expected}. Read it again and decide."


class PrincipalPartlyWritten(TernError):
    code, status, retryable, title = "principal-partly-written", 503, True, "Not every broker group has the change"
    fix = (
        "Principal '{principal}': broker groups {done} have the change permanently, and proxies that reach one of them apply it; {missing} did "
        "not answer and get it as soon as they do. Repeat the request until it succeeds to be sure: nothing is done twice."
    )
