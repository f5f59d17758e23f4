"""Start threads until the kernel has refused fifty."""

import os
import threading
import time

refused = 0
for _ in range(100_000):
    try:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    except RuntimeError:
        refused += 1
        if refused == 50:
            os._exit(1)
