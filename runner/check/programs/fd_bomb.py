# ruff: noqa: T201
"""Open files until something stops it."""

import errno
import os

number = 0
try:
    while True:
        os.dup(0)
        number += 1
except OSError as error:
    os.closerange(10, 20)
    print(errno.errorcode[error.errno or 0], number)
