"""A pickle that runs a command where it is opened; the last word is an honest one."""

import os
import pickle
import socket
import sys


class Payload:
    """Opened, it makes a file that the host looks for."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (sys.argv[2],)


link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect("/link/s")
for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    link.send(pickle.dumps(Payload(), protocol))
link.send(b'{"honest":1}')
