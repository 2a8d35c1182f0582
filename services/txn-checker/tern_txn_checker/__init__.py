"""The transaction checker: asks producers what became of transactions that nobody has ended, and ends them. Stateless: claims share the work."""
