"""`make bench`: what containers cost here, as medians and ratios of one run. Nothing here passes or fails a test.

    python scripts/bench.py [--engine docker|bwrap] [--rounds N] [--out FILE]

Each row is measured by this run, interleaved with what it is compared with; a row that cannot be measured here says why. Bars are
the project's own aims, printed beside the figures whether or not they are met.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from images.api import Image
from images.host import host_image
from ops import wire
from runner import bundle as bundles
from runner import host
from runner.bundle import Bundle, project, write
from runner.jobs import Jobs
from runner.warm import Pool
from runner.workspace import release
from sandbox.api import Job, Limits, Mount, Sandbox
from sandbox.find import find

KERNEL = b"""import torch
import triton
import triton.language as tl

@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out
"""
TASK = b"""import torch
ENTRY = "add"
def make_inputs(case, generator, device):
    return tuple(torch.randn(case["N"], generator=generator, device=device) for _ in range(2))
def reference(x, y):
    return x + y
"""
CALLS = 3
BARE = f"""import importlib.util, sys, time
import torch, triton
def module(name):
    spec = importlib.util.spec_from_file_location(name, sys.argv[1] + "/" + name + ".py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
task, kernel = module("task"), module("kernel")
for call in range({CALLS}):
    inputs = task.make_inputs({{"N": 4096}}, torch.Generator().manual_seed(call), "cpu")
    start = time.perf_counter_ns()
    out = kernel.add(*inputs)
    spent = time.perf_counter_ns() - start
    assert torch.allclose(out, task.reference(*inputs))
"""
"""The same work without a container and without a judge: import, load, make inputs, call, time, compare."""
FLOOD = "import os\nblock = b'x' * (1 << 20)\nfor _ in range(10240): os.write(1, block)"
MIB = 1 << 20


def bundle() -> Bundle:
    cases = json.dumps([{"case_id": "main", "parameters": {"N": 4096}}]).encode()
    target = b'{"backend": "cpu", "architecture": "cpu-interpreter"}'
    return bundles.from_files({"kernel.py": KERNEL, "task.py": TASK, "cases.json": cases, "target.json": target})


def ask(sock: Any, order: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
    sock.settimeout(60.0)
    wire.send(sock, order, fds)
    return wire.receive(sock)[0]


def evaluate(pool: Pool, contract: Bundle) -> tuple[float, float]:
    """One candidate in a fresh guest beside a fresh judge, both warm. Seconds: all of it; and of that, from the guest's
    assignment to its answer that the source is loaded ("first output")."""
    with ExitStack() as stack:
        judge, guest = (pool.take(role, contract.digest) for role in ("judge", "guest"))
        for blank in (judge, guest):
            stack.enter_context(blank)
            blank.ready()
        began = time.perf_counter()
        write(contract, judge.place)
        project(contract, guest.place)
        control = judge.ready()
        opened = ask(control, {"op": "open", "spin": False})
        assigned = time.perf_counter()
        with guest.ready() as sock:
            attached = ask(control, {"op": "attach", "arm": "c", "timeout_s": 60}, (sock.fileno(),))
        release(contract.kernel, guest.place)
        loaded = ask(control, {"op": "load", "arm": "c", "entry": "add", "timeout_s": 60})
        first = time.perf_counter() - assigned
        order = {"op": "series", "arm": "c", "case": "main", "families": [""] * CALLS, "timeout_s": 60, "left_s": 60}
        samples = ask(control, order)["samples"]
        spent = time.perf_counter() - began
        if not opened.get("ok") or "hello" not in attached or loaded != {"claim": {"ok": True}}:
            raise SystemExit(f"bench: the small candidate did not load: {opened} {attached} {loaded}")
        if len(samples) != CALLS or any(s["why"] for s in samples):
            raise SystemExit(f"bench: the small candidate is wrong: {samples}")
        return spent, first


def bare(python: Path, place: Path) -> float:
    """The same work in a subprocess, seconds."""
    began = time.perf_counter()
    subprocess.run(
        [python, "-I", "-c", BARE, place],
        check=True,
        timeout=120,
        env={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )
    return time.perf_counter() - began


def warm_rows(sandbox: Sandbox, image: Image, python: Path, rounds: int) -> dict[str, Any]:
    """Warm evaluations and bare subprocesses in turn."""
    contract = bundle()
    spent, first, alone = [], [], []
    with Pool(sandbox, Jobs(image, "cpu")) as pool, tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in ("kernel.py", "task.py"):
            (place / name).write_bytes(contract.files[name])
        for _ in range(rounds):
            pool.fill(contract.digest, 1)
            for _, blank in pool._blanks:
                blank.ready()
            whole, answer = evaluate(pool, contract)
            spent.append(whole)
            first.append(answer)
            alone.append(bare(python, place))
    return {
        "rounds": rounds,
        "warm_evaluation_ms": ms(spent),
        "bare_subprocess_ms": ms(alone),
        "warm_over_bare": round(median(spent) / median(alone), 3),
        "first_output_ms": ms(first),
        "first_output_worst_ms": round(max(first) * 1e3, 1),
    }


def empty_job(image: Image, name: str, code: str, limits: Limits, *mounts: Mount) -> Job:
    return Job(f"assay-bench-{name}", "guest", ("-I", "-S", "-c", code), image, mounts=mounts, limits=limits)


def start_rows(sandbox: Sandbox, image: Image, rounds: int) -> dict[str, Any]:
    """A container that does nothing, start to gone; and how late one that never ends comes back after its deadline."""
    empty, late = [], []
    for index in range(rounds):
        began = time.perf_counter()
        sandbox.run(empty_job(image, f"empty-{index}", "", Limits(20, memory_bytes=256 * MIB)))
        empty.append(time.perf_counter() - began)
        began = time.perf_counter()
        sandbox.run(empty_job(image, f"late-{index}", "while True: pass", Limits(0.5, memory_bytes=256 * MIB)))
        late.append(time.perf_counter() - began - 0.5)
    return {
        "empty_container_ms": ms(empty),
        "return_after_deadline_ms": ms(late),
        "return_after_deadline_worst_ms": round(max(late) * 1e3, 1),
    }


def memory_row(engine: str) -> dict[str, Any]:
    """Peak resident memory of a runner (a process of its own) while its guest writes 10 GiB to stdout and nothing stops it."""
    done = subprocess.run(
        [sys.executable, __file__, "--flood", engine], check=True, timeout=900, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def flood(engine: str) -> None:
    sandbox = find(engine)  # type: ignore[arg-type]
    before = peak_mib()
    limits = Limits(600, memory_bytes=256 * MIB, output_bytes=11 << 30)
    seen = sandbox.run(empty_job(host_image(host.guest_python(None)), "flood", FLOOD, limits)).stdout.seen
    sys.stdout.write(
        json.dumps({"guest_wrote_gib": round(seen / (1 << 30), 2), "runner_peak_mib": peak_mib(), "idle_mib": before})
    )


def peak_mib() -> int:
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


def ms(seconds: list[float]) -> float:
    return round(median(seconds) * 1e3, 1)


BARS: tuple[tuple[str, str, str, Callable[[float], bool]], ...] = (
    ("warm guest: assigned to first output, ms", "first_output_ms", "<= 20", lambda v: v <= 20),
    ("warm evaluation over a bare subprocess with torch", "warm_over_bare", "<= 1.0", lambda v: v <= 1.0),
    ("runner's peak memory, guest writes 10 GiB, MiB", "runner_peak_mib", "< 200", lambda v: v < 200),
    ("return after the deadline, worst, ms", "return_after_deadline_worst_ms", "<= 3000", lambda v: v <= 3000),
)


def table(record: dict[str, Any]) -> str:
    lines = [
        f"# Bench of {record['when']}",
        "",
        f"Written by `{record['command']}` at commit {record['commit']}. {record['host']}; {record['load']}.",
        "Medians unless called worst. Interleaved in one run; compare ratios, not machines.",
        "",
        "| what | bar | " + " | ".join(record["engines"]) + " |",
        "| --- | --- |" + " --- |" * len(record["engines"]),
    ]
    rows = record["engines"].values()
    for title, key, bar, met in BARS:
        cells = [f"{r[key]} ({'met' if met(r[key]) else 'NOT met'})" if key in r else "not measured" for r in rows]
        lines.append(f"| {title} | {bar} | " + " | ".join(cells) + " |")
    barred = {key for _, key, _, _ in BARS}
    for key in sorted({key for row in rows for key in row} - barred):
        lines.append(f"| {key} | | " + " | ".join(str(row.get(key, "not measured")) for row in rows) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("docker", "bwrap"), action="append")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--flood", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        return flood(options.flood)
    python = host.guest_python(None)
    record: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "command": "python scripts/bench.py " + " ".join(sys.argv[1:]),
        "commit": commit(),
        "host": f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} CPUs, Python {platform.python_version()}",
        "load": f"load average {os.getloadavg()[0]:.1f} at the start",
        "engines": {},
    }
    for engine in options.engine or ["docker", "bwrap"]:
        sandbox = find(engine)
        image = host_image(python, docker=engine == "docker")
        record["engines"][engine] = {
            **warm_rows(sandbox, image, python, options.rounds),
            **start_rows(sandbox, image, options.rounds),
            **memory_row(engine),
        }
    text = table(record)
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)
    return None


def commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
