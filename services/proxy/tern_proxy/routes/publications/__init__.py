"""Batches that become visible at once: chunks are staged, their batch is published or given up."""
