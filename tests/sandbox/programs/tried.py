"""In the guest environment: what the build container's trial says of each source, and every cubin that it saw.

stdin: {"guest": folder, "scratch": folder, "jobs": [{"source", "cases", "seconds"}]}; stdout: {"answers", "cubins":
[[file, kernel]], "cuobjdump": path}. The entry is `run`; the target is sm_90.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

order = json.load(sys.stdin)
sys.path.insert(0, order["guest"])

import triton  # noqa: E402
from stub import Driver  # noqa: E402
from trial import attempt  # noqa: E402

scratch = Path(order["scratch"])


class Keeping(Driver):
    def load_binary(self, name, binary, shared, device):
        loaded = super().load_binary(name, binary, shared, device)
        (scratch / f"{len(os.listdir(scratch))}-{name}.cubin").write_bytes(binary)
        return loaded


def load(source, number):
    path = scratch.parent / f"kernel_{number}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


driver = Keeping(90)
triton.runtime.driver.set_active(driver)
answers = []
for number, job in enumerate(order["jobs"]):
    plan = {"cases": job["cases"], "memory_bytes": 4 << 30}
    answers.append(attempt(driver, load(job["source"], number).run, plan, time.monotonic() + job.get("seconds", 60)))
cubins = [[str(path), path.stem.partition("-")[2]] for path in sorted(scratch.iterdir())]
json.dump(
    {
        "answers": answers,
        "cubins": cubins,
        "cuobjdump": str(Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"),
    },
    sys.stdout,
)
