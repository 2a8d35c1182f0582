"""Statistics of topics and groups over HTTP."""
