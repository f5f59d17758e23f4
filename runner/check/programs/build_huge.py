"""What a source may do at its import: ask for a constant of ten gigabytes."""

HUGE = tuple(range(10**9))
