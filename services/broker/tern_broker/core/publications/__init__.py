"""Batches that become visible at once, decided purely: staged in chunks, published, given up."""
