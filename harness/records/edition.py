"""Edition of the rules: the meaning of metrics and rules, a number in every record;
editions are not pooled (rule 35).

A fingerprint of the measuring code (`harness/records/code.py`) covers what an epoch's
numbers come from. The rest of the harness derives and judges: its edition is raised by
hand when a metric or a rule changes its meaning, not when a name or a sentence does.
"""

from __future__ import annotations

#: Every edition, oldest first, with the change that made it.
EDITIONS = (
    "1: medians of epochs; preparation divided by the requested epochs of a run",
    "2: T(E) = once + first + E x (each + epoch); rankings by each + epoch, the mean "
    "of the measured epochs; cores and the order of mini-batches are part of an "
    "experiment; the newest run of a round counts; test accuracy is measured outside "
    "the cap",
    "3: workers are sandboxed, and one that is not has a caveat; a run is spoilt by "
    "its own waiting for processors and by gaps in its samples, at any length of "
    "epoch; device bytes and processor time beyond the counted ones break a rule; "
    "artefacts are frozen at the last gate, and work after it is part of once; T(E) "
    "counts once what epochs prepared together share; the training working set is "
    "measured without the system; kernel time of other programs counts, and clocks "
    "that waited spoil a run; requests that the kernel merged count once in the engine "
    "efficiency; the disk's noise is judged within epochs, at any length of epoch, and "
    "spoils a run from a tenth of its time on; what the sandbox's walls make "
    "impossible is no rule any more; a foreign training that diverges has a caveat",
)
EDITION = len(EDITIONS)
