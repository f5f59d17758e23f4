"""Numbers in, verdict out. Pure, no torch: the runner decides with it and a replay decides again."""
