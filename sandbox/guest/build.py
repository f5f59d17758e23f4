"""The build container's program: does this source import, and is its entry callable? The answer is the last line of stdout.

A claim like every word from a guest: a candidate that forges it gains nothing, because it must still import and be right when it is
measured. Arguments: the source's path, the entry's name.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys

DETAIL = 2000


def build(path: str, entry: str) -> dict[str, object]:
    """{"ok": true, "jit": [names]} or {"ok": false, "reason", "detail"}; reasons: syntax, build-error, no-entry."""
    with open(path, "rb") as file:
        source = file.read()
    try:
        compile(source, path, "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"ok": False, "reason": "syntax", "detail": f"{type(error).__name__}: {error}"[:DETAIL]}
    try:
        spec = importlib.util.spec_from_file_location("candidate_kernel", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["candidate_kernel"] = module
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit included: the candidate's own failure
        return {"ok": False, "reason": "build-error", "detail": f"{type(error).__name__}: {error}"[:DETAIL]}
    if not callable(getattr(module, entry, None)):
        return {"ok": False, "reason": "no-entry", "detail": f"no callable {entry!r} at top level"}
    jit = sorted(n for n, v in vars(module).items() if type(v).__name__ in ("JITFunction", "InterpretedFunction"))
    return {"ok": True, "jit": jit[:64]}


if __name__ == "__main__":
    report = json.dumps(build(sys.argv[1], sys.argv[2]))
    sys.stdout.flush()
    os.write(1, b"\n" + report.encode() + b"\n")
    os._exit(0)  # whatever the candidate started at import ends with this container
