"""Bytes that a terminal or a log stumbles over: escape sequences, NUL, half a character."""

import os

os.write(1, b"\x1b]0;title\x07\x1b[2J\x1b[31m\x00\xff\xfe\xc3(\r\x08\x9b1m\xe2\x80\xae end")
