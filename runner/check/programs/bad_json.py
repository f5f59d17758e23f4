"""Messages that a strict reader refuses, each on its own; the last word is an honest one, which must still be understood."""

import array
import socket

link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect("/link/s")
for raw in (
    b'{"a":NaN}',
    b'{"a":Infinity}',
    b'{"a":-Infinity}',
    b'{"a":1e400}',
    b'{"a":' + b"9" * 5000 + b"}",
    b'{"a":99999999999999999999}',
    b"[" * 50_000,
    b'{"a":' * 9 + b"1" + b"}" * 9,
    b'{"a":1,"a":2}',
    b'{"a":"' + b"x" * 150_000 + b'"}',
    b'\xef\xbb\xbf{"a":1}',
    b'{"a":"\\udcff"}',
    b'{"a":"\xff"}',
    b"[1,2]",
    b'"text"',
    b'{"a":1',
    b"\0",
    b"{'a': 1}",
):
    link.send(raw)
link.sendmsg([b'{"a":1}'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
link.send(b'{"honest":-0.0}')
