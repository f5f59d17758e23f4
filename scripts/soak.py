"""`make soak`: what only a thousand repetitions show. Writes its own record.

    python scripts/soak.py {kills|deadlines|candidates} [--engine docker|bwrap] [--times N] [--seed N] [--out FILE]

kills       a runner is killed (SIGKILL) at a random moment of a container's life; the next one sweeps; nothing may be left
deadlines   a job that never ends by itself, with a random deadline; how late each run came back
candidates  consecutive small candidates in warm guests; containers, mounts, cgroups, descriptors, threads and memory of the runner

Exit 1 when something was left, was late, or grew.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from images.api import Image
from images.host import host_image
from runner import host as runner_host
from runner.blank import start
from runner.jobs import Jobs
from runner.warm import Pool
from runner.workspace import workspace
from sandbox import cgroups, host
from sandbox.api import Job, Limits, Sandbox, SandboxUnavailable
from sandbox.bwrap import GROUP
from sandbox.docker import OWNER, connect
from sandbox.find import find
from scripts import bench

MARK = "assay-soak"
FORKS = "import os, time\nfor _ in range(3):\n    os.fork()\nwhile True: time.sleep(0.01)"
IGNORES = "import signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nwhile True: pass"
LATE_S = 3.0
SETTLE_S = 20.0


def job(image: Image, name: str, code: str, wall_s: float) -> Job:
    limits = Limits(wall_s, memory_bytes=256 << 20)
    return Job(f"{MARK}-{name}", "guest", ("-I", "-S", "-c", code, f"{MARK}-{os.getpid()}"), image, limits=limits)


def left(owner: str) -> dict[str, list[str]]:
    """What exists of one runner's, by kind; only what there is. Others may be at work on this machine."""
    _, space, pid, started = owner.split(":")
    mine = f"assay-{pid}-{space}-"
    containers: list[str] = []
    with contextlib.suppress(SandboxUnavailable), closing(connect()) as api:
        containers = [one["Id"][:12] for one in api.containers(all=True, filters={"label": f"{OWNER}={owner}"})]
    found = {
        "containers": containers,
        "cgroups": [name for name, _ in cgroups.named(f"{GROUP}{space}.{pid}.{started}.")],
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if mine in line],
        "processes": [place.name for place in Path("/proc").iterdir() if place.name.isdigit() and _is_of(place, pid)],
        "workspaces": [p.name for p in Path(tempfile.gettempdir()).glob(mine + "*")],
    }
    return {kind: names for kind, names in found.items() if names}


def _is_of(place: Path, pid: str) -> bool:
    """A job's process carries its runner's pid as an argument; a blank's is seen by its cgroup."""
    try:
        return f"\0{MARK}-{pid}\0".encode() in (place / "cmdline").read_bytes()
    except OSError:
        return False


def kills(engine: str, image: Image, times: int, dice: random.Random) -> dict[str, Any]:
    """Each victim is a fork of this process, which has no thread and no sandbox of its own yet: a runner like any other."""
    found, moments = [], []
    for index in range(times):
        pid = os.fork()
        if pid == 0:
            _victim(engine, image, index)
        owner = host.owner(pid)
        moment = dice.uniform(0.0, 1.2 if engine == "docker" else 0.5)
        time.sleep(moment)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        moments.append(moment)
        swept = os.fork()  # the sweep is the next runner's: by a process that knows nothing of the dead one
        if swept == 0:
            _sweep(engine)
        os.waitpid(swept, 0)
        deadline = time.monotonic() + SETTLE_S  # a daemon may still be creating what the dead one asked for
        while (now := left(owner)) and time.monotonic() < deadline:
            time.sleep(0.2)
            if (swept := os.fork()) == 0:
                _sweep(engine)
            os.waitpid(swept, 0)
        if now:
            found.append({"run": index, "killed_after_s": round(moment, 3), **now})
        progress(index, times)
    return {
        "runs": times,
        "left_something": len(found),
        "what": found[:20],
        "median_moment_s": round(median(moments), 3),
    }


def _victim(engine: str, image: Image, index: int) -> None:
    try:
        sandbox = find(engine)  # type: ignore[arg-type]
        if index % 2:
            sandbox.run(job(image, f"{os.getpid()}-{index}", FORKS, 60))
        else:
            with workspace(), start(sandbox, Jobs(image, "cpu"), "guest") as blank:
                blank.running.freeze()
                time.sleep(60)
    finally:
        os._exit(0)


def _sweep(engine: str) -> None:
    try:
        find(engine)  # type: ignore[arg-type]
        with workspace():
            pass
    finally:
        os._exit(0)


def deadlines(engine: str, image: Image, times: int, dice: random.Random) -> dict[str, Any]:
    sandbox: Sandbox = find(engine)  # type: ignore[arg-type]
    late, wrong = [], []
    for index in range(times):
        limit = dice.uniform(0.05, 0.6)
        began = time.monotonic()
        status = sandbox.run(job(image, f"late-{index}", dice.choice((FORKS, IGNORES)), limit)).status
        late.append(time.monotonic() - began - limit)
        if status != "timeout":
            wrong.append(status)
        progress(index, times)
    cuts = quantiles(late, n=100)
    return {
        "runs": times,
        "late_p50_s": round(median(late), 3),
        "late_p99_s": round(cuts[98], 3),
        "late_worst_s": round(max(late), 3),
        "later_than_3_s": sum(one > LATE_S for one in late),
        "not_timeout": wrong,
        "left": left(host.owner(os.getpid())),
    }


def candidates(engine: str, image: Image, times: int, dice: random.Random) -> dict[str, Any]:
    """Warm evaluations in a row. The first tenth settles caches; growth is counted from there."""
    contract = bench.bundle()
    points: list[dict[str, int]] = []
    with Pool(find(engine), Jobs(image, "cpu")) as pool:  # type: ignore[arg-type]
        for index in range(times):
            pool.fill(contract.digest, 1)
            bench.evaluate(pool, contract)
            if index == max(1, times // 10) or index == times - 1:
                gc.collect()
                points.append(usage())
            progress(index, times)
    first, last = points[0], points[-1]
    return {"runs": times, "early": first, "end": last, "left": left(host.owner(os.getpid()))}


def usage() -> dict[str, int]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "resident_mib": int(status["VmRSS"].split()[0]) // 1024,
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
        "host_processes": sum(name.isdigit() for name in os.listdir("/proc")),
        **{kind: len(names) for kind, names in left(host.owner(os.getpid())).items()},
    }


def failed(part: str, found: dict[str, Any]) -> bool:
    if part == "kills":
        return bool(found["left_something"])
    if part == "deadlines":
        return bool(found["later_than_3_s"] or found["not_timeout"] or found["left"])
    early, end = found["early"], found["end"]
    # the next unit's blanks wait at both points; other programs of this machine are not ours to judge
    grown = {key: end[key] - early.get(key, 0) for key in end if key not in ("host_processes", "mounts")}
    return bool(found["left"]) or any(by > (16 if key == "resident_mib" else 0) for key, by in grown.items())


def progress(index: int, times: int) -> None:
    if (index + 1) % max(1, times // 10) == 0:
        sys.stderr.write(f"[soak] {index + 1}/{times}\n")
        sys.stderr.flush()


PARTS: dict[str, Callable[[str, Image, int, random.Random], dict[str, Any]]] = {
    "kills": kills,
    "deadlines": deadlines,
    "candidates": candidates,
}
TIMES = {"kills": 1000, "deadlines": 1000, "candidates": 200}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=tuple(PARTS))
    parser.add_argument("--engine", choices=("docker", "bwrap"), default="bwrap")
    parser.add_argument("--times", type=int, help="default: 1000; of candidates 200")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    times = options.times or TIMES[options.part]
    image = host_image(runner_host.guest_python(None), docker=options.engine == "docker")
    began = time.time()
    found = PARTS[options.part](options.engine, image, times, random.Random(options.seed))
    record = {
        "what": options.part,
        "command": "python scripts/soak.py " + " ".join(sys.argv[1:]),
        "commit": bench.commit(),
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)),
        "took_s": round(time.time() - began),
        "engine": options.engine,
        "seed": options.seed,
        **found,
        "passed": not failed(options.part, found),
    }
    text = json.dumps(record, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)
    sys.exit(0 if record["passed"] else 1)


if __name__ == "__main__":
    main()
