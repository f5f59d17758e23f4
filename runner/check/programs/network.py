# ruff: noqa: T201
"""Reach somebody, by every road: argv[2:] are a port and an abstract socket name on which the host listens.

Nothing is dialled where there is any route: a sandbox that broke is reported as such, and reaches nobody.
"""

import contextlib
import errno
import json
import socket
import sys
from collections.abc import Callable

port, abstract = int(sys.argv[2]), sys.argv[3]
answers: dict[str, str] = {}


def attempt(name: str, action: Callable[[], object]) -> None:
    try:
        action()
        answers[name] = "reached"
    except socket.gaierror:
        answers[name] = "no name"
    except OSError as error:
        answers[name] = errno.errorcode.get(error.errno or 0, "timeout")


def dial(family: int, kind: int, address: object, payload: bytes = b"x") -> None:
    with socket.socket(family, kind) as s:
        s.settimeout(3)
        s.connect(address)  # type: ignore[arg-type]
        s.send(payload)
        if kind == socket.SOCK_DGRAM:
            s.recv(1)


def routes() -> list[str]:
    """Every way out of this network namespace: lines of the routing tables that are not the loopback's."""
    found = []
    for path, header in (("/proc/net/route", 1), ("/proc/net/ipv6_route", 0)):
        with contextlib.suppress(FileNotFoundError), open(path) as file:
            found += [line for line in file.read().splitlines()[header:] if line.split()[-1] != "lo"]
    return found


if routes():
    print(json.dumps({"a route": "reached"}))
    sys.exit(0)
attempt("tcp host", lambda: dial(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", port)))
attempt("tcp6 host", lambda: dial(socket.AF_INET6, socket.SOCK_STREAM, ("::1", port)))
attempt("tcp away", lambda: dial(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80)))
attempt("udp away", lambda: dial(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 53)))
attempt("metadata", lambda: dial(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)))
attempt("dns", lambda: socket.getaddrinfo("example.invalid", 80))
attempt("raw icmp", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close())
attempt("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM).close())
attempt("alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET).close())
attempt("abstract unix", lambda: dial(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + abstract))
for path in (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/dbus/system_bus_socket",
):
    attempt(path, lambda path=path: dial(socket.AF_UNIX, socket.SOCK_STREAM, path))  # type: ignore[misc]
print(json.dumps(answers))
