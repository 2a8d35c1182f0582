"""Planned reads over HTTP: plans of many topics, and leases that keep planned ranges."""
