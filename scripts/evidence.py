"""Writes a record of real runs on this machine's device: the floor of the bracket, two searches, their replays, all raw samples.

    python scripts/evidence.py OUT [--device cuda|cpu] [--candidates N]

Everything in OUT is written here from what the program itself printed or logged; nothing is edited by hand. OUT gets README.md (a
table of it all), doctor.json, floor.json, one JSON account per episode, and events.jsonl (the whole log: environment, digests,
every sample of every call).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from eventstore.facts import Pair
from eventstore.log import Log
from runner import bundle as bundles
from runner import devices, host
from runner.lab import Arm, PairPlan
from runner.machine import Device, Wanted, machine

IDENTITY = {
    "kernel.py": b"def identity(x):\n    return x\n",
    "task.py": b"""import torch
ENTRY = "identity"
def make_inputs(case, generator, device):
    return (torch.randn(case["N"], generator=generator, device=device).to(torch.float16),)
def reference(x):
    return x
""",
    "target.json": b'{"backend": "any", "architecture": "any"}',
}
"""The identity kernel: what is left of a call when the candidate does nothing, the transport of inputs and outputs."""
BYTES = (128 << 10, 16 << 20, 128 << 20)


def assay(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and parsed stdout of the program; its live log goes to our stderr."""
    done = subprocess.run([sys.executable, "-m", "runner.cli", *arguments], stdout=subprocess.PIPE, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}


def floor(device: Device, engine: str, home: Path) -> dict[str, Any]:
    """Identity against identity through the whole path, three fresh pairs: the bracket's floor and its A/A spread."""
    sizes = BYTES if device == "cuda" else BYTES[:2]
    names = {f"{n >> 10}KiB": n // 2 for n in sizes}
    cases = [{"case_id": name, "parameters": {"N": elements}} for name, elements in names.items()]
    bundle = bundles.from_files({**IDENTITY, "cases.json": json.dumps(cases).encode()})
    lab = machine(Wanted(device=device, engine=engine), home).lab
    arms = (Arm("baseline", bundle.kernel), Arm("baseline-b", bundle.kernel))
    pairs = [lab.pair(bundle, PairPlan(f"floor-{i}", arms, order_seed=i, blocks=6, calls=5)) for i in range(3)]
    return {name: spread(pairs, name) for name in names}


def spread(pairs: list[Pair], case: str) -> dict[str, Any]:
    """Microseconds over all timed calls, and the log-ratio of the two identical arms, per pair of processes."""
    times = {
        (index, arm): [ns / 1000 for s in pair.series if (s.arm, s.case) == (arm, case) and s.block >= 0 for ns in s.ns]
        for index, pair in enumerate(pairs)
        for arm in ("baseline", "baseline-b")
    }
    everything = [us for values in times.values() for us in values]
    deciles = quantiles(everything, n=10)
    return {
        "calls": len(everything),
        "p10_us": round(deciles[0], 1),
        "p50_us": round(median(everything), 1),
        "p90_us": round(deciles[8], 1),
        "aa_ratio": [
            round(median(times[i, "baseline"]) / median(times[i, "baseline-b"]), 4) for i in range(len(pairs))
        ],
    }


def searched(operator: str, options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """One search, its full account and its replay."""
    code, result = assay(
        *("optimize", operator, "--device", options.device, "--engine", options.engine, "--dtype", options.dtype),
        *("--strategy", "best_of_n", "--seed", "1", "--max-candidates", str(options.candidates)),
        *("--max-pairs", str(options.max_pairs), "--home", str(home)),
    )
    _, shown = assay("show", result["episode"], "--json", "--home", str(home))
    replay_code, replayed = assay("replay", result["episode"], "--json", "--home", str(home))
    return {"exit": code, "result": result, "show": shown, "replay": {"exit": replay_code, **replayed}}


def events(home: Path) -> Iterator[str]:
    """The log, one JSON object a line, payloads exactly as stored."""
    with Log.open(home, read_only=True) as log:
        for event in log.read():
            head = {"position": event.position, "stream": event.stream, "version": event.version, "at_ns": event.at_ns}
            yield json.dumps(
                {**head, "hash": event.hash.hex(), "fact": json.loads(event.payload)}, separators=(",", ":")
            )


def table(record: dict[str, Any]) -> str:
    """The README of the record."""
    lines = [
        f"# Record of {record['when']}, {record['device']}",
        "",
        f"Written by `{record['command']}`. Raw samples: events.jsonl.",
        "",
        "## Floor: an identity kernel through the whole bracket, and its A/A spread",
        "",
        "| input and output, each | calls | p10 us | p50 us | p90 us | identical arms, ratio per pair of processes |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for case, row in record["floor"].items():
        ratios = ", ".join(map(str, row["aa_ratio"]))
        lines.append(f"| {case} | {row['calls']} | {row['p10_us']} | {row['p50_us']} | {row['p90_us']} | {ratios} |")
    for name, found in record["episodes"].items():
        result = found["result"]
        lines += [
            "",
            f"## assay optimize {name}: {result['outcome']} (exit {found['exit']})",
            "",
            f"Shape {result['shape']}, {result['dtype']}, engine {result['engine']}, grade {result['grade']}, A/A half-width "
            f"{result['aa_halfwidth']}, baseline {result['baseline_us']} us. Replay agrees: {found['replay'].get('agree')}.",
            "",
            "| candidate | knobs | verdict | reason | speed-up | at least | median us |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for one in found["show"]["candidates"]:
            numbers = one["numbers"]
            figures = " | ".join(str(numbers.get(key, "")) for key in ("speedup", "lower", "median_us"))
            lines.append(f"| {one['candidate']} | {one['knobs']} | {one['verdict']} | {one['reason']} | {figures} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--engine", default="docker", choices=("docker", "bwrap"))
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--max-pairs", type=int, default=4)
    parser.add_argument("--operators", nargs="*", default=["rmsnorm", "matmul_epilogue"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = devices.gpus()
    record: dict[str, Any] = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": f"{found[0]['name']}, driver {found[0]['driver']}" if options.device == "cuda" else "cpu-interpreter",
        "command": " ".join(["python", "scripts/evidence.py", "OUT", *sys.argv[2:]]),
        "floor": {},
        "episodes": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        home = host.home(Path(folder))
        _, doctor = assay("doctor", "--json", "--home", str(home))
        save(options.out / "doctor.json", doctor)
        record["floor"] = floor(options.device, options.engine, home)
        save(options.out / "floor.json", record["floor"])
        for operator in options.operators:
            record["episodes"][operator] = searched(operator, options, home)
            save(options.out / f"{operator}.json", record["episodes"][operator])
            (options.out / "README.md").write_text(table(record))
            (options.out / "events.jsonl").write_text("\n".join(events(home)) + "\n")
    sys.stdout.write((options.out / "README.md").read_text())


def save(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
