"""Errors of transactions and producer groups. Imported from errors.py, which has the table."""

from tern_wire.tern_error import TernError


class TransactionIdInvalid(TernError):
    code, status, title = "transaction-id-invalid", 400, "The transaction id was not made by this cluster"
    fix = "Use the transaction_id exactly as the begin, the check or the list of transactions returned it."


class CheckUrlForbidden(TernError):
    code, status, title = "check-url-forbidden", 400, "The check URL is not allowed"
    fix = "{reason}. Give a URL that --check-hosts and --check-http of the proxies allow, or none: then checks are received by pull."


class TransactionUnknown(TernError):
    code, status, title = "transaction-unknown", 404, "The transaction is unknown"
    fix = (
        "Its broker group does not know this transaction: it ended so long ago that its outcome is not remembered any more (the 262,144 that "
        "ended last are). Look for its messages by their keys."
    )


class ProducerGroupNotFound(TernError):
    code, status, title = "producer-group-not-found", 404, "The producer group does not exist"
    fix = "Producer group '{producer_group}' does not exist. Create it: PUT /v1/producer-groups/{producer_group}."


class TransactionResolved(TernError):
    code, status, title = "transaction-resolved", 409, "The transaction has ended the other way"
    fix = "It is {state}, and stays so. Read it with GET /v1/transactions/ and its id, and correct what was decided from the other outcome."


class TopicsApart(TernError):
    code, status, title = "topics-apart", 409, "No broker group has all topics of the transaction"
    fix = (
        "A transaction lives in one broker group, and none has all of these as the messages ask: {topics}. Declare the topics again "
        "(PUT /v1/topics/ and the name), so that every broker group has them, and pin queues of one broker group only."
    )


class ProducerGroupBusy(TernError):
    code, status, title = "producer-group-busy", 409, "The producer group has transactions that have not ended"
    fix = (
        "Producer group '{producer_group}' has {open} open and {expired} expired transactions. List them: "
        "GET /v1/transactions?producer_group={producer_group}. End them, then delete it."
    )


class TransactionExpired(TernError):
    code, status, title = "transaction-expired", 410, "The checks of the transaction were not answered in time"
    fix = (
        "All checks of its producer group went unanswered. Only an operator ends it now: POST /v1/transactions/ its id /resolve with "
        "an outcome and a reason, or `ternmq tx commit ID --reason ...`."
    )


class TooManyOpenTransactions(TernError):
    code, status, retryable, title = (
        "too-many-open-transactions",
        429,
        True,
        "The producer group has too many transactions that have not ended",
    )
    fix = (
        "Producer group '{producer_group}' has as many open or expired transactions as it may (1,000 and 10,000), or its broker group has "
        "(200,000), or its namespace has its share of these. Nothing was stored. "
        "Commit or roll back what is open, resolve what has expired, and repeat."
    )
