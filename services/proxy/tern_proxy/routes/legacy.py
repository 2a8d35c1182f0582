"""Rows that are still told in the old tables."""

from tern_proxy.core.access.requirements import Requirement, Rule
from tern_proxy.openapi import (
    cluster,
    dead_letters,
    members,
    principals,
    producers,
    queries,
    requests,
    scheduled,
    transactions,
)
from tern_proxy.openapi.messages import MESSAGES
from tern_proxy.openapi.operations import ADMIN, Operation
from tern_proxy.routes.checks import post_receive_checks
from tern_proxy.routes.produce import post_batch, post_message
from tern_proxy.routes.pull import get_messages
from tern_proxy.routes.receive import post_receive
from tern_proxy.routes.request_reply import get_reply, post_reply, post_request
from tern_proxy.routes.route import Gives, Handler, Route, Takes
from tern_proxy.routes.settle import post_ack, post_settle
from tern_proxy.routes.transactions import post_begin, post_begin_several, post_commit, post_rollback
from tern_wire.errors import ERRORS

_HOT: dict[tuple[str, str], tuple[str, Handler]] = {
    ("POST", "/v1/topics/{topic}/messages"): ("produce", post_message),
    ("POST", "/v1/topics/{topic}/messages/batch"): ("produce_batch", post_batch),
    ("GET", "/v1/topics/{topic}/queues/{queue}/messages"): ("pull", get_messages),
    ("POST", "/v1/topics/{topic}/requests"): ("request", post_request),
    ("POST", "/v1/topics/{topic}/replies"): ("reply", post_reply),
    ("GET", "/v1/topics/{topic}/requests/{correlation_id}"): ("find_reply", get_reply),
    ("POST", "/v1/topics/{topic}/transactions"): ("begin", post_begin),
    ("POST", "/v1/transactions"): ("begin_several", post_begin_several),
    ("POST", "/v1/producer-groups/{producer_group}/checks/receive"): ("checks", post_receive_checks),
    ("POST", "/v1/transactions/{transaction_id}/commit"): ("commit", post_commit),
    ("POST", "/v1/transactions/{transaction_id}/rollback"): ("rollback", post_rollback),
    ("POST", "/v1/topics/{topic}/groups/{group}/receive"): ("receive", post_receive),
    ("POST", "/v1/topics/{topic}/groups/{group}/ack"): ("ack", post_ack),
    ("POST", "/v1/topics/{topic}/groups/{group}/settle"): ("settle", post_settle),
}


def _rule(line: str, *requirements: str, is_admin: bool = False, is_anonymous: bool = False) -> Rule:
    method, path = line.split()
    parsed = tuple(Requirement.parse(text) for text in requirements)
    return Rule(method=method, path=path, requirements=parsed, is_admin=is_admin, is_anonymous=is_anonymous)


def _admin(line: str, *requirements: str) -> Rule:
    return _rule(line, *requirements, is_admin=True)


_T, _G, _PG = "/v1/topics/{topic}", "/v1/groups/{group}", "/v1/producer-groups/{producer_group}"
_PUB, _SUB, _SUB_GROUP = "PUB topic {topic}", "SUB topic {topic}", "SUB group {group}"
_SEE_TOPIC, _SEE_GROUP = "DESCRIBE topic {topic}", "DESCRIBE group {group}"
_CREATE_TOPIC = "CREATE topic {topic} if it is created by its first use"
_TXN_HEADER = "TXN producer-group of the header"
_CREATE_PRODUCER_GROUP = "CREATE producer-group of the header if it is created by its first use"
_ACK, _CLUSTER, _ADMIN = "ACK group {group}", "DESCRIBE cluster", "ADMIN cluster"

RULES: tuple[Rule, ...] = (
    # Messages. Whoever may read a topic may look for single messages in it; whoever may send to it may recall.
    _rule(f"POST {_T}/messages", _PUB, _CREATE_TOPIC),
    _rule(f"POST {_T}/messages/batch", _PUB, _CREATE_TOPIC),
    _rule(f"GET {_T}/messages", _SUB),
    _rule(f"GET {_T}/messages/{{message_id}}", _SUB),
    _rule(f"GET {_T}/queues/{{queue}}/messages", _SUB),
    _rule(
        f"POST {_T}/groups/{{group}}/receive",
        *(
            _SUB,
            _SUB_GROUP,
            "ACK group {group} if it settles",
            "CREATE group {group} if it is created by its first use",
        ),
    ),
    _rule(f"POST {_T}/groups/{{group}}/ack", _SUB, _ACK),
    _rule(f"POST {_T}/groups/{{group}}/settle", _SUB, _ACK),
    _rule("GET /v1/messages/{message_id}/trace", "DESCRIBE topic of the query"),
    _rule(f"GET {_T}/scheduled", _SEE_TOPIC),
    _rule(f"DELETE {_T}/scheduled/{{recall_handle}}", _PUB),
    # Request and reply. A reply is for whoever asked: the address names the principal, and nobody else finds it.
    _rule(f"POST {_T}/requests", _PUB, _CREATE_TOPIC),
    _rule(f"GET {_T}/requests/{{correlation_id}}", _PUB),
    _rule(f"POST {_T}/replies", _SUB),
    # Transactions.
    _rule(f"POST {_T}/transactions", _PUB, _TXN_HEADER, _CREATE_TOPIC, _CREATE_PRODUCER_GROUP),
    _rule(
        "POST /v1/transactions",
        *("PUB topic of the body", "TXN producer-group of the body"),
        *("CREATE topic of the body if it is created by its first use",),
        *("CREATE producer-group of the body if it is created by its first use",),
    ),
    _rule("POST /v1/transactions/{transaction_id}/commit", "TXN producer-group of the transaction"),
    _rule("POST /v1/transactions/{transaction_id}/rollback", "TXN producer-group of the transaction"),
    # By hand and against what the producers may say: an operator's, not a producer's.
    _admin("POST /v1/transactions/{transaction_id}/resolve", "ALTER producer-group of the transaction"),
    _rule("GET /v1/transactions/{transaction_id}", "DESCRIBE producer-group of the transaction"),
    _rule("GET /v1/transactions"),
    _rule(
        f"POST {_PG}/checks/receive",
        *("TXN producer-group {producer_group}",),
        *("CREATE producer-group {producer_group} if it is created by its first use",),
    ),
    _rule("GET /v1/producer-groups"),
    _rule(f"GET {_PG}", "DESCRIBE producer-group {producer_group}"),
    _admin(
        f"PUT {_PG}",
        *("CREATE producer-group {producer_group}", "ALTER producer-group {producer_group} if it names settings"),
    ),
    _admin(f"DELETE {_PG}", "DELETE producer-group {producer_group}"),
    _rule(f"GET {_T}/route", _SEE_TOPIC),
    _rule(f"GET {_T}/offsets", _SEE_TOPIC),
    _rule(f"GET {_T}/stats", _SEE_TOPIC),
    # Groups.
    _rule(f"GET {_G}/lag", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"GET {_G}/offsets", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"PUT {_G}/offsets", _ACK, "SUB topic of the body"),
    _admin(f"POST {_G}/seek", "SEEK group {group}", "DESCRIBE topic of the body"),
    # Members. A producer is a member of its producer group, which has the path of a group.
    _rule(
        f"POST {_G}/members/heartbeat",
        *("SUB group {group} if it is a consumer", "SUB topic of the body if it is a consumer"),
        *("TXN producer-group {group} if it is a producer",),
    ),
    _rule(
        f"GET {_G}/members",
        *("DESCRIBE group {group} if they are consumers", "DESCRIBE producer-group {group} if they are producers"),
    ),
    _rule(
        f"DELETE {_G}/members/{{member}}",
        *("SUB group {group} if it is a consumer", "TXN producer-group {group} if it is a producer"),
    ),
    _rule(f"GET {_G}/assignments", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"GET {_G}/locks", _SEE_GROUP, "DESCRIBE topic of the query"),
    _rule(f"POST {_G}/locks", _SUB_GROUP, "SUB topic of the body"),
    _rule(f"DELETE {_G}/locks", _SUB_GROUP, "SUB topic of the query"),
    # Dead letters. Bodies are shown to those alone who may SUB the group; a redrive goes to the group that has them, and to nobody else.
    _rule(f"GET {_G}/dlq", _SEE_GROUP),
    _admin(f"DELETE {_G}/dlq", "DELETE group {group}"),
    _admin(f"POST {_G}/dlq/redrive", "SEEK group {group}", "DESCRIBE topic of the body if it names one"),
    _rule("GET /v1/tasks/{task}", "DESCRIBE group of the task"),
    _admin("DELETE /v1/tasks/{task}", "SEEK group of the task"),
    # The cluster.
    _rule("GET /v1/cluster", _CLUSTER),
    # Topics of all namespaces are named, and what is declared is everybody's: an administrator's.
    _admin("GET /v1/broker-groups/{broker_group}", _ADMIN),
    _admin("GET /v1/broker-groups/{broker_group}/topics", _ADMIN),
    _admin("POST /v1/broker-groups/{broker_group}/join", _ADMIN),
    _rule("GET /metrics", _CLUSTER),
    _rule("GET /readyz", _CLUSTER),
    _rule("GET /healthz", is_anonymous=True),
    _rule("GET /openapi.json"),
    _rule("HEAD /openapi.json"),
    # Principals.
    _rule("GET /v1/whoami"),
    _admin("GET /v1/principals", _CLUSTER),
    _admin("GET /v1/principals/{principal}", _CLUSTER),
    _admin("PUT /v1/principals/{principal}", _ADMIN),
    _admin("DELETE /v1/principals/{principal}", _ADMIN),
    _admin("POST /v1/principals/{principal}/keys", _ADMIN),
    _admin("DELETE /v1/principals/{principal}/keys/{kid}", _ADMIN),
    _admin("GET /v1/acls", _CLUSTER),
)


_OPERATIONS = {
    (each.method, each.path): each
    for each in (
        *MESSAGES,
        *requests.REQUESTS,
        *producers.PRODUCERS,
        *transactions.TRANSACTIONS,
        *queries.QUERIES,
        *scheduled.SCHEDULED,
        *ADMIN,
        *members.MEMBERS,
        *cluster.CLUSTER,
        *dead_letters.DEAD_LETTERS,
        *principals.PRINCIPALS,
    )
}
_RULES = {(rule.method, rule.path): rule for rule in RULES}


def _row(rule: Rule, told: Operation | None) -> Route:
    hot, handler = _HOT.get((rule.method, rule.path), ("", None))
    return Route(
        rule.method,
        rule.path,
        handler,
        id=told.id if told else "",
        tag=told.tag if told else "",
        summary=told.summary if told else "",
        about=(told.description or "") if told else "",
        hot=hot,
        asks=tuple(map(str, rule.requirements)),
        is_admin=rule.is_admin,
        is_anonymous=rule.is_anonymous,
        parameters=told.parameters if told else (),
        takes=Takes(content=told.body, is_needed=told.is_body_needed) if told and told.body else None,
        gives={
            status: Gives(
                text=each["description"],
                content=each.get("content", {}),
                headers=tuple(each.get("headers", ())),
                links=each.get("links", {}),
            )
            for status, each in (told.answers if told else {}).items()
        },
        errors=tuple(ERRORS[code] for code in told.errors) if told else (),
        query=told.query if told else "",
        bodies=told.bodies if told else (),
        extensions=told.extensions if told else {},
    )


LEGACY = tuple(_row(_RULES[key], told) for key, told in _OPERATIONS.items()) + tuple(
    _row(rule, None) for key, rule in _RULES.items() if key not in _OPERATIONS
)
