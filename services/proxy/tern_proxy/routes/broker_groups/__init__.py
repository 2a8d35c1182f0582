"""Broker groups over HTTP: what joins a running mesh, and what is left in one before it is taken out."""
