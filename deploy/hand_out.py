"""`python hand_out.py [OPTIONS OF ternmq init-cluster]`: what the init service of docker-compose.yml runs, before everything else.

It makes the cluster directory /cluster with `ternmq init-cluster`, then gives each process what is its own and no more:

    /volumes/NAME/ca.crt       the authority that all trust
    /volumes/NAME/cluster.key  of links and receipt handles; clients do not get it
    /volumes/NAME/tls.crt, tls.key  NAME's certificate and key

for every NAME that is a folder of /volumes and has a certificate. Each is a volume that NAME's container alone mounts, read only: the
authority's key stays in /cluster, which no service sees. Safe to repeat; with --renew it hands out new certificates, and the processes
take them within seconds. Nothing secret is printed.
"""

import os
import secrets
import subprocess
import sys
from pathlib import Path

CLUSTER, VOLUMES = Path("/cluster"), Path("/volumes")
# Clients prove who they are by certificate or key, and are no part of the mesh.
CLIENT_ROLE = "client"
# Grafana's administrator, for who wants to change something: made here, so that nobody meets the well-known one.
GRAFANA_PASSWORD = VOLUMES / "grafana" / "admin-password"


def main() -> int:
    """The exit code of `ternmq init-cluster`, 0 when all is handed out."""
    made = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-P", "-m", "tern_cli", "init-cluster", str(CLUSTER), *sys.argv[1:]], check=False
    )
    if made.returncode:
        return made.returncode
    for cert in sorted((CLUSTER / "certs").glob("*/*.crt")):
        role, name = cert.parent.name, cert.stem
        folder = VOLUMES / name
        # Also a folder of the image that nothing is mounted on: the image is read-only, and who is not run gets nothing.
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
    """*target* with *data*, replaced at once; False when it was so already. Readable for its owner alone."""
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
