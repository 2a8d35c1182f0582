"""Broker groups over HTTP: joining a running mesh, and remaining contents before removal."""
