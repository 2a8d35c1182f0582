"""What a deployment must not have: secrets where others read them, tools that build, rights, clients. Read from the engine and from inside."""

import re
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from tests.compose.engine import Container, Engine

# A private key in PEM, or the text of a client's key of either kind.
SECRET = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----|mq[ks]_[A-Za-z0-9]{16}_[A-Za-z0-9_-]{43}")
_BLOCK_BYTES = 1 << 20
_OVERLAP_BYTES = 256
# Those of libraries that come with examples; none is ours.
_SAMPLES = re.compile(r"(tests?|examples?|docs?)/|\.py$|\.pyc$|\.md$|\.rst$|\.h$|\.so[.0-9]*$|\.jar$")
TOOLS = ("pip", "pip3", "gcc", "cc", "g++", "make", "ld", "as", "git", "curl-config")
# uid, effective capabilities, no-new-privileges; then what a read-only root says; then tools that are there.
_INSIDE = (
    "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs):' /proc/1/status; "
    "touch /intruder 2>/dev/null && echo writable; "
    f"for tool in {' '.join(TOOLS)}; do command -v $tool; done; "
    "python -c 'import pip' 2>/dev/null && echo pip-module; "
    "find /secrets /cluster -type f -perm /077 2>/dev/null"
)


def check_inside(engine: Engine, container: Container) -> None:
    """AssertionError unless the container runs as nobody in particular, on a root that it cannot write, without tools."""
    told = engine.docker("exec", container.id, "bash", "-c", _INSIDE, check=False).splitlines()
    status = {line.split(":")[0]: line.split()[1:] for line in told if ":" in line}
    assert status.pop("Uid") == ["10001"] * 4, f"{container.service} runs as another user: {told}"
    assert status.pop("NoNewPrivs") == ["1"], f"{container.service} may gain privileges"
    assert {value[0].strip("0") for value in status.values()} == {""}, f"{container.service} has capabilities: {told}"
    rest = [line for line in told if ":" not in line]
    assert not rest, f"{container.service} has what it should not have: {rest}"


def check_doors(containers: Sequence[Container]) -> None:
    """AssertionError unless the two proxies alone are published, and on loopback alone; everybody else's networks lead nowhere."""
    for each in containers:
        ports = each.document["NetworkSettings"]["Ports"] or {}
        published = [binding for bindings in ports.values() for binding in bindings or ()]
        if each.service.startswith("proxy-"):
            assert [binding["HostIp"] for binding in published] == ["127.0.0.1"], f"{each.service}: {published}"
        else:
            assert not published, f"{each.service} is published: {published}"
        host = each.document["HostConfig"]
        assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"], f"{each.service}: {host['CapDrop']}"
        assert host["Memory"] > 0 and host["PidsLimit"] > 0, f"{each.service} has no limits"


def secrets_in(text: str, known: Sequence[str]) -> list[str]:
    """Which of *known* occur in *text*, and anything that looks like one; each cut to its first letters."""
    found = [secret for secret in known if secret in text]
    found += [match[0].decode() for match in SECRET.finditer(text.encode())]
    return [secret[:12] + "..." for secret in found]


def check_texts(engine: Engine, containers: Sequence[Container], known: Sequence[str]) -> None:
    """AssertionError if a secret is in a container's settings, command lines, environment or log, or in an image's history."""
    texts = {f"inspect {each.service}": str(each.document) for each in containers}
    for each in containers:
        logs = subprocess.run(
            ["docker", "logs", each.id], env=engine.environment, capture_output=True, text=True, check=True
        )
        texts[f"log of {each.service}"] = logs.stdout + logs.stderr
        if each.is_running:
            texts[f"processes of {each.service}"] = engine.docker("top", each.id, "-eo", "pid,args")
            told = engine.docker("exec", each.id, "bash", "-c", "tr '\\0' '\\n' < /proc/1/environ", check=False)
            texts[f"environment of {each.service}"] = told
    for image in {each.document["Config"]["Image"] for each in containers}:
        texts[f"history of {image}"] = engine.docker("history", "--no-trunc", image)
        texts[f"settings of {image}"] = engine.docker("image", "inspect", image)
    found = {where: matches for where, text in texts.items() if (matches := secrets_in(text, known))}
    assert not found, f"secrets lie about: {found}"


def check_layers(engine: Engine, image: str, known: Sequence[bytes]) -> int:
    """How many files the layers of *image* have; AssertionError if one of them holds a secret."""
    files = 0
    with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE, env=engine.environment) as saving:
        assert saving.stdout is not None
        with tarfile.open(fileobj=saving.stdout, mode="r|") as outer:
            for member in outer:
                part = outer.extractfile(member) if member.isfile() else None
                if part is not None and member.name.endswith(("layer.tar", ".tar")):
                    for name, hit in _secrets_of_layer(part, known):
                        raise AssertionError(f"{image} has a secret in {member.name}: {name} ({hit[:12]!r})")
                    files += 1
    return files


def _secrets_of_layer(part: IO[bytes], known: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=part, mode="r|") as layer:
        for member in layer:
            content = layer.extractfile(member) if member.isfile() else None
            if content is not None:
                yield from ((member.name, hit) for hit in hits(member.name, content, known))


def hits(name: str, content: Any, known: Sequence[bytes]) -> Iterator[bytes]:
    before = b""
    while block := content.read(_BLOCK_BYTES):
        seen = before + block
        yield from (secret for secret in known if secret in seen)
        if not _SAMPLES.search(name) and (match := SECRET.search(seen)):
            yield match[0]
        before = seen[-_OVERLAP_BYTES:]
