"""The settings of a client, from the environment and from named contexts.

    TERNMQ_ENDPOINT      URLs of proxies, separated by commas
    TERNMQ_CONTEXT       the name of a context
    otherwise            the current context, else http://127.0.0.1:8080

    TERNMQ_NAMESPACE, TERNMQ_KEY_FILE, TERNMQ_CA_FILE   before those of a context

Law: a context applies as a whole or not at all. Where the endpoints come from somewhere else, its
key is not sent there, and its namespace does not apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tern_client.settings.contexts import CONTEXT, Context, Contexts, contexts_file, read_contexts
from tern_client.transport.credentials import CA_FILE, KEY_FILE
from tern_wire.paths import PORT_PROXY

ENDPOINT, NAMESPACE = "TERNMQ_ENDPOINT", "TERNMQ_NAMESPACE"
ENDPOINT_DEFAULT = f"http://127.0.0.1:{PORT_PROXY}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where a mesh is, and how a client is known to it.

    - *endpoints*: URLs of proxies. *namespace*: all topics and groups are in it; "" for none.
    - *key_file*, *ca_file*: "" for none.
    - *source*: where the endpoints come from, for messages to people.

    Example:

        from tern_client import Settings

        urls = "http://127.0.0.1:8080, http://127.0.0.1:9"
        settings = Settings.from_env({"TERNMQ_ENDPOINT": urls})
        print(len(settings.endpoints))  # -> 2
        print(settings.source)  # -> TERNMQ_ENDPOINT
    """

    endpoints: tuple[str, ...]
    namespace: str = ""
    key_file: str = ""
    ca_file: str = ""
    source: str = ""

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, context: str = "") -> "Settings":
        """Return the settings of the variables *environ*, such as os.environ. *context*: a context
        by name, which precedes all variables. ContextUnusable.
        """
        if not context and (urls := split_urls(environ.get(ENDPOINT, ""))):
            return _settings(Context(endpoints=urls), environ, ENDPOINT)
        name = context or environ.get(CONTEXT, "")
        found = read_contexts(contexts_file(environ))
        if chosen := _chosen(found, name):
            used, source = chosen
            return _settings(used, {} if context else environ, source)
        return _settings(Context(endpoints=(ENDPOINT_DEFAULT,)), environ, "the default")


def split_urls(text: str) -> tuple[str, ...]:
    """Return the URLs in *text*, which are separated by commas."""
    return tuple(url.strip() for url in text.split(",") if url.strip())


def _chosen(found: Contexts, name: str) -> tuple[Context, str] | None:
    if name:
        return found.named(name), f"the context {name}"
    if found.current:
        return found.named(found.current), f"the current context {found.current}"
    return None


def _settings(context: Context, environ: Mapping[str, str], source: str) -> Settings:
    return Settings(
        endpoints=context.endpoints,
        namespace=environ.get(NAMESPACE) or context.namespace,
        key_file=environ.get(KEY_FILE) or context.key_file,
        ca_file=environ.get(CA_FILE) or context.ca_file,
        source=source,
    )
