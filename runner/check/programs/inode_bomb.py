# ruff: noqa: T201
"""Make empty files until something stops it."""

import os
import sys

number = 0
try:
    while True:
        os.close(os.open(f"/tmp/{number}", os.O_CREAT | os.O_WRONLY))
        number += 1
except OSError as error:
    print(number, error.strerror)
    sys.exit(3)
