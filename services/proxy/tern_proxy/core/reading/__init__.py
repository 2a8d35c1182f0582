"""Pure decisions about outgoing messages: filters, ranges, documents, receipts, seeks."""
