"""`new-system` keeps every promise of a system: the same mini-batches, features and
losses, within its plan."""

import outcore


def test_it_keeps_every_promise() -> None:
    """Run `outcore check new-system --quick`."""
    assert [one for one in outcore.check("new-system", quick=True) if not one.ok] == []
