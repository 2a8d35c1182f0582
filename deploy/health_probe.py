"""`python -I -S health_probe.py URL SECRETS`: exit code 0 when URL answers 200, within 5 s.

The health check of every container. It presents the container's own certificate (tls.crt and
tls.key in the folder SECRETS) to the container's own listener, since internal listeners answer only
processes of the cluster. A proxy's /readyz requires a key: the probe sends the root key, which it
derives from cluster.key. Nothing secret is an argument or a variable.

It runs every few seconds in every container, and so uses only the standard library without urllib
and without site packages. It takes about 60 ms.
"""

import base64
import hmac
import signal
import socket
import ssl
import sys

TIMEOUT_S = 4.0
# Deadline of the whole process, which must end before the next one starts.
END_S = 5
# The derivation of tern_security.cluster_directory, which needs site packages.
_ROOT_KEY_ID, _ROOT_KEY_SALT = "root000000000000", b"ternmq root key 1"


def main() -> int:
    """Return 0 for a 200, 1 for anything else.

    The last line of the answer goes to stdout, where `docker inspect` shows it.
    """
    url, secrets = sys.argv[1], sys.argv[2]
    host, _, port_and_path = url.removeprefix("https://").partition(":")
    port, _, path = port_and_path.partition("/")
    context = ssl.create_default_context(cafile=f"{secrets}/ca.crt")
    context.load_cert_chain(f"{secrets}/tls.crt", f"{secrets}/tls.key")
    request = f"GET /{path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
    if sys.argv[3:] == ["--root"]:
        request += f"Authorization: Bearer {root_key(secrets)}\r\n"
    try:
        with (
            socket.create_connection((host, int(port)), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as link,
        ):
            link.sendall((request + "\r\n").encode())
            answer = b""
            while len(answer) < 65_536 and (more := link.recv(65_536)):
                answer += more
    except OSError as error:
        print(f"{url}: {error}")
        return 1
    print(answer.rpartition(b"\r\n")[2].decode(errors="replace")[:500])
    return 0 if answer.startswith(b"HTTP/1.1 200 ") else 1


def root_key(secrets: str) -> str:
    """Return the text of the root key."""
    with open(f"{secrets}/cluster.key", "rb") as file:
        mac = hmac.digest(file.read(), _ROOT_KEY_SALT, "sha256")
    return f"mqk_{_ROOT_KEY_ID}_{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


if __name__ == "__main__":
    signal.alarm(END_S)
    sys.exit(main())
