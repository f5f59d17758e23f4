"""Fork without end, each child too; the first process gives up when the kernel has refused it fifty times."""

import os
import signal
import sys

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
first, refused = os.getpid(), 0
while refused < 50 or os.getpid() != first:
    try:
        os.fork()
    except OSError:
        refused += 1
sys.exit(1)
