"""The simulator convicts what it should: pysyncobj as it comes is not safe, and this world shows it."""

from tests.sim.stock import run_seed

# Of sixty seeds, six convicted it when this was written: 3, 6, 13, 37, 46, 51.
SEEDS_MAX = 60


def test_stock_pysyncobj_is_convicted() -> None:
    """Within sixty seeds two nodes differ, something acknowledged is gone, or the group is stuck for good."""
    for seed in range(SEEDS_MAX):
        result = run_seed(seed)
        if result.reason:
            print(f"seed {seed}: {result.reason}")
            assert result.acknowledged and result.faults
            return
    raise AssertionError(f"{SEEDS_MAX} seeds have nothing to say against stock pysyncobj: the simulator is too kind")


def test_the_same_seed_is_the_same_run() -> None:
    """To the last event."""
    assert run_seed(3) == run_seed(3)
