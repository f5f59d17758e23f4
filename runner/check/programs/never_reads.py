# ruff: noqa: T201
"""Connect to whoever listens and never read what it sends."""

import socket
import time

link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect("/link/s")
time.sleep(1.5)
print("slept")
