"""Comparing replicas, decided purely: digests, inspections, verdicts."""
