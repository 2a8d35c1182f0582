"""`python hand_out.py [OPTIONS OF ternmq init-cluster]`: hand out keys and certificates.

The init service of docker-compose.yml runs this before all other services. It makes the cluster
directory /cluster with `ternmq init-cluster`, then gives each process its own files and no others:

    /volumes/NAME/ca.crt            the authority that all processes trust
    /volumes/NAME/cluster.key       key of links and receipt handles; clients do not get it
    /volumes/NAME/tls.crt, tls.key  NAME's certificate and key

NAME is every folder of /volumes that has a certificate. Each is a volume that only NAME's container
mounts, read only: the authority's key stays in /cluster, which no service mounts.

Safe to repeat. With --renew it hands out new certificates, and the processes load them within
seconds. Nothing secret is printed.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

CLUSTER, VOLUMES = Path("/cluster"), Path("/volumes")
# Clients authenticate by certificate or key, and are no part of the mesh.
CLIENT_ROLE = "client"
# The password of Grafana's administrator. It is made here, so that the well-known one never works.
GRAFANA_PASSWORD = VOLUMES / "grafana" / "admin-password"


def main() -> int:
    """Return the exit code of `ternmq init-cluster`, 0 when all files are handed out."""
    made = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", "tern_cli", "init-cluster", str(CLUSTER), *sys.argv[1:]], check=False
    )
    if made.returncode:
        return made.returncode
    for cert in sorted((CLUSTER / "certs").glob("*/*.crt")):
        role, name = cert.parent.name, cert.stem
        folder = VOLUMES / name
        # Skips also a folder of the image on which nothing is mounted: the image is read-only, and
        # the service does not run.
        if not os.path.ismount(folder):
            continue
        files = {"ca.crt": CLUSTER / "ca.crt", "tls.key": cert.with_suffix(".key"), "tls.crt": cert}
        if role != CLIENT_ROLE:
            files["cluster.key"] = CLUSTER / "cluster.key"
        changed = [target for target, source in files.items() if place(source.read_bytes(), folder / target)]
        print(f"{name}: {', '.join(changed) if changed else 'nothing new'}")
    if os.path.ismount(GRAFANA_PASSWORD.parent) and not GRAFANA_PASSWORD.exists():
        place(secrets.token_urlsafe(24).encode(), GRAFANA_PASSWORD)
    return 0


def place(data: bytes, target: Path) -> bool:
    """Replace *target* with *data* atomically; return False when it had that content already.

    Only its owner can read the file.
    """
    if target.exists() and target.read_bytes() == data:
        return False
    incoming = target.with_name(f".{target.name}")
    descriptor = os.open(incoming, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    incoming.replace(target)
    return True


if __name__ == "__main__":
    sys.exit(main())
