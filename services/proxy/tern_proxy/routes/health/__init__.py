"""Routes that tern_service serves at the proxy: health, metrics, the API document."""
