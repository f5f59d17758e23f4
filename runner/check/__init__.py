"""The shipped conformance suite: hostile programs and faults of the platform, each against what must come of it.

`assay sandbox check` runs every program of the first table below in the sandbox that this host offers, then provokes the faults of
the second. A row is `ok` only when all of
this holds:

- the run ended with the expected word of `sandbox.status`, and what the host saw agrees with what the program says;
- it ended within its deadline and 3 s, and we were back, with the container started and removed, within 30 s of that deadline;
- no container, cgroup, mount, process or file that carries its name, or that this process owns, is left;
- memory, disk, inodes and processes of the host are back, to within 1 GiB, 1 GiB, 50 000 and 500, within 15 s. Others use the
  machine too, so these figures find an escape, not a small leak; small ones are found by their names;
- its bundle has the digest it had, nobody of the host was visited from inside, and no secret of the launcher is in its output;
- an honest program right after it gives its known answer. Its wall time is in the report and is not judged.

A row that cannot be run here is `not run`, with the reason. Code 0: no row is `NO`. Code 76: one is; with `--strict` also where a
row was not run. `--json` prints one document with the evidence of each row, `--only NAME` runs some rows, `--list` runs none.

A fault is provoked only in things of the suite's own: a runner that it started, a proxy before the daemon, a small disk that one
process sees. Afterwards the same is looked at: what is left, what is gone, whether an honest program works.

Every program runs inside the sandbox only. The one that tries the network dials nothing where it finds any route; what it may
reach instead are listeners that the suite put up on the loopback. The ones that set clocks or write to /proc write what is there.
"""
