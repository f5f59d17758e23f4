"""What a source may do at its import: run other programs, without end."""

import os

while True:
    os.system("/bin/true")
