"""Swagger UI over /openapi.json.

Its script and style come from the package, never from another host.
"""

import base64
import hashlib
import re
from importlib.resources import files

from fastapi.openapi.docs import get_swagger_ui_html

from tern_proxy.routes.call import Call, Page
from tern_wire.errors import RouteNotFound

_ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
    "favicon-32x32.png": "image/png",
}
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
# The same release has the same files.
_KEPT = {"Cache-Control": "max-age=86400"}


async def get_docs(_: Call) -> Page:
    """Return a page to read and try this API."""
    # Relative, so that the page also works behind a prefix.
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="TernMQ: HTTP API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon-32x32.png",
        swagger_ui_parameters={"docExpansion": "none", "filter": True, "tryItOutEnabled": True},
    )
    body = bytes(page.body)
    return Page(body, headers={"Content-Security-Policy": _policy(body)})


async def get_docs_asset(_: Call, asset: str) -> Page:
    """Return a file of that page."""
    kind = _ASSETS.get(asset)
    if kind is None:
        raise RouteNotFound(method="GET", path=f"/docs/{asset[:80]}")
    return Page(files("fastapi_swagger").joinpath("resources", asset).read_bytes(), kind, _KEPT)


def _policy(page: bytes) -> str:
    """Return a policy that allows no foreign content, and only the scripts of *page*."""
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE.findall(page))
    scripts = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "frame-ancestors 'none'"
    )
