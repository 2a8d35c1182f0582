"""Limits of one namespace in one broker group, each with its reason."""

# Largest share (percent) of one namespace, or of all names without one, in the possible topics,
# queues, consumer groups, producer groups and members: a tenant that creates in a loop leaves the
# rest to others. An operator sets less where there are many namespaces.
NAMESPACE_SHARE_DEFAULT_PERCENT = 60
# Topics and groups that one principal (or address) may create at one proxy: a burst as large as the
# initial declarations of a large installation, then this rate a second. A loop needs ten minutes to
# use up a namespace's share of topics; without the rate it needed nine seconds.
CREATIONS_BURST_DEFAULT, CREATIONS_PER_S_DEFAULT = 2_000, 20
# Principals and addresses remembered as recent creators, some 200 bytes each.
CREATORS_KEPT_MAX = 16_384
