"""Broker groups, the topics that they host, and the owners of keys."""
