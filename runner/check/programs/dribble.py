"""A byte now and then, for ever: never silent, never done."""

import os
import time

while True:
    os.write(1, b".")
    time.sleep(0.2)
