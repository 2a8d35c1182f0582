"""Limits of one namespace in one broker group, each with its reason."""

# Of the topics, queues, consumer groups, producer groups and members that there may be, one namespace (or all names without one) has at most this share, in
# percent: whatever one tenant makes in a loop, others go on making theirs. An operator chooses less where there are many.
NAMESPACE_SHARE_DEFAULT_PERCENT = 60
# Topics and groups that one principal (or address) may make at one proxy: at once what a large installation declares when it is set up, then so many
# a second. A loop needs ten minutes until it has a namespace's share of topics; without the rate it needed nine seconds.
CREATIONS_BURST_DEFAULT, CREATIONS_PER_S_DEFAULT = 2_000, 20
# Principals and addresses that are known for having made something lately, some 200 bytes each.
CREATORS_KEPT_MAX = 16_384
