"""The proxy: TernMQ's HTTP door. Stateless: whatever a later request needs travels inside receipt handles and offsets."""
