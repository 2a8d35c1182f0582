"""Numbers of topics and groups over HTTP."""
