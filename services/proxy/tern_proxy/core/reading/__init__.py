"""Messages on their way out, decided purely: filters, ranges, documents, receipts, seeks."""
