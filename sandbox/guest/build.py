"""The build container's program: does this source import, is its entry callable, and do the kernels that it launches compile?

The answer is the last line of stdout, a claim like every word from a guest: a candidate that forges it gains nothing, because it
must still import and be right when it is measured. Arguments: the source's path, the entry's name and, where kernels are to be
compiled (see trial.py), the path of a JSON file {"arch", "memory_bytes", "call_s", "end_s", "cases": [inputs of one call, ...]}.
The calls may take `call_s` seconds, and end `end_s` seconds after the start.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

DETAIL = 2000


def build(path: str, entry: str) -> tuple[dict[str, Any], object]:
    """{"ok": true, "jit": [names]} or {"ok": false, "reason", "detail"}, and the entry; reasons: syntax, build-error, no-entry."""
    with open(path, "rb") as file:
        source = file.read()
    try:
        compile(source, path, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"ok": False, "reason": "syntax", "detail": f"{type(error).__name__}: {error}"[:DETAIL]}, None
    try:
        spec = importlib.util.spec_from_file_location("candidate_kernel", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate_kernel"] = module
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit included: the candidate's own failure
        return {"ok": False, "reason": "build-error", "detail": f"{type(error).__name__}: {error}"[:DETAIL]}, None
    function = getattr(module, entry, None)
    if not callable(function):
        return {"ok": False, "reason": "no-entry", "detail": f"no callable {entry!r} at top level"}, None
    jit = sorted(n for n, v in vars(module).items() if type(v).__name__ in ("JITFunction", "InterpretedFunction"))
    return {"ok": True, "jit": jit[:64]}, function


def main() -> None:
    began = time.monotonic()
    driver: Any = None
    if len(sys.argv) > 3:
        import triton
        from stub import Driver  # type: ignore[import-not-found]

        with open(sys.argv[3], encoding="utf-8") as file:
            plan = json.load(file)
        driver = Driver(plan["arch"])
        triton.runtime.driver.set_active(driver)  # before the import: some sources ask for the target there
    report, function = build(sys.argv[1], sys.argv[2])
    if report["ok"] and driver is not None:
        from trial import attempt  # type: ignore[import-not-found]

        try:
            until = min(time.monotonic() + plan["call_s"], began + plan["end_s"])
            report["compile"] = attempt(driver, function, plan, until)
        except Exception as error:  # this step never turns an import that went well into a failure
            report["compile"] = f"{type(error).__name__}: {error}"[:300]
    raw = json.dumps(report).encode()
    sys.stdout.flush()
    os.write(1, b"\n" + raw + b"\n")
    os._exit(0)  # whatever the candidate started at import ends with this container


if __name__ == "__main__":
    main()
