"""What a read will read: offsets asked from the cluster, and their division into tasks."""
