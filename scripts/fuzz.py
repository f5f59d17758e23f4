"""Random and mutated input for the strict readers (`fuzz_targets.py`), in numbers that no test can afford. Writes its own record.

    python scripts/fuzz.py [--targets json,frames,folder] [--inputs N] [--seconds S] [--seed N]
                           [--engine random|atheris] [--out FILE]

random   mutates known inputs; needs nothing
atheris  is led by the coverage of the readers; `pip install --target DIR atheris` and put DIR on PYTHONPATH

Each target runs in a process of its own until it has had N inputs, or S seconds have passed, or an input shows a fault: that input
goes into the record. Exit 1 when there is one, 64 when the engine is not installed.
"""

from __future__ import annotations

import argparse
import base64
import importlib.metadata
import importlib.util
import os
import platform
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
READERS = ("ops.wire", "sandbox.collect")
MAX_LEN = 600
MEMORY = Path("/dev/shm")
"""Where the folders are made: a disk's journal would take most of the time."""
FOUND = 77
"""Exit code of a child whose input showed a fault (libFuzzer's own)."""
TOKENS = (*rb'[ ] { } " \ \u \ud800 : , 1e999 NaN -0'.split(), b"\n\0\5", b"\n\1\4", b"\xff")


def mutate(rng: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """One input: a known one with up to eight changes."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.randint(0, 8)):
        at = rng.randint(0, len(data))
        match rng.randint(0, 5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randint(0, 7)
            case 1:
                data[at:at] = rng.choice(TOKENS)
            case 2:
                del data[at : at + rng.randint(1, 8)]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, 40)] * rng.randint(1, 3)
            case 4:
                other = rng.choice(seeds)
                data[at:] = other[rng.randint(0, len(other)) :]
            case _:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
    return bytes(data[:MAX_LEN])


def random_child(target: str, inputs: int, seconds: int, seed: int, place: Path) -> None:
    from scripts.fuzz_targets import SEEDS, TARGETS

    rng, until, done = random.Random(seed), time.monotonic() + seconds, 0
    while done < inputs and time.monotonic() < until:
        data = mutate(rng, SEEDS[target])
        done += 1
        try:
            TARGETS[target](data)
        except Exception:
            traceback.print_exc()
            (place / "crash-1").write_bytes(data)
            sys.stderr.write(f"#{done}: a fault\n")
            sys.exit(FOUND)
    sys.stderr.write(f"Done {done} runs\n")


def atheris_child(target: str, inputs: int, seconds: int, seed: int, place: Path) -> None:
    """Does not return: libFuzzer ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=list(READERS)):
        from scripts.fuzz_targets import SEEDS, TARGETS
    corpus = place / "corpus"
    corpus.mkdir()
    for index, data in enumerate(SEEDS[target]):
        (corpus / str(index)).write_bytes(data)
    limits = [f"-runs={inputs}", f"-max_total_time={seconds}", f"-seed={seed}", f"-max_len={MAX_LEN}"]
    atheris.Setup([sys.argv[0], *limits, f"-artifact_prefix={place}/", str(corpus)], TARGETS[target])
    atheris.Fuzz()


def campaign(target: str, options: argparse.Namespace) -> dict[str, Any]:
    """One target in its own process. What it counted itself, and the input that showed a fault, if any."""
    with tempfile.TemporaryDirectory(prefix="assay-fuzz-run-", dir=MEMORY if MEMORY.is_dir() else None) as place:
        given = [f"--{key}={getattr(options, key)}" for key in ("inputs", "seconds", "seed", "engine")]
        command = [sys.executable, __file__, *given, "--targets", target, "--child", place]
        began = time.monotonic()
        # what the targets make lies below the run's own folder, and goes with it
        done = subprocess.run(command, capture_output=True, env={**os.environ, "TMPDIR": place}, check=False)
        took = time.monotonic() - began
        said = done.stderr.decode("utf-8", "backslashreplace")
        crashes = [path.read_bytes() for path in sorted(Path(place).glob("[a-z]*-*")) if path.is_file()]
    counted = re.findall(r"^Done (\d+) runs", said, re.MULTILINE) or re.findall(r"^#(\d+)[\t:]", said, re.MULTILINE)
    if done.returncode not in (0, FOUND) and not crashes:
        raise SystemExit(f"{target}: the fuzzer itself failed (code {done.returncode}):\n{said[-2000:]}")
    fault = ""
    if done.returncode != 0:
        said_last = [line for line in said.splitlines() if "Error: " in line or "Finding: " in line]
        fault = f"{''.join(said_last[-1:])[:300]}; input (base64): {base64.b64encode(b''.join(crashes[:1])).decode()}"
    return {"target": target, "inputs": int(counted[-1]) if counted else 0, "seconds": took, "fault": fault}


def record(options: argparse.Namespace, rows: list[dict[str, Any]], began: float, at: str) -> str:
    engine = f"atheris {importlib.metadata.version('atheris')}" if options.engine == "atheris" else "random (mutation)"
    lines = [
        "Fuzzing of the strict readers: " + ", ".join(READERS),
        "command: python scripts/fuzz.py " + " ".join(sys.argv[1:]),
        f"commit: {at}",
        f"when: {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime(began))}",
        f"engine: {engine}; seed {options.seed}; inputs of at most {MAX_LEN} bytes",
        f"on: Python {platform.python_version()}, Linux {platform.release()}, {len(os.sched_getaffinity(0))} CPUs",
        f"asked for: {options.inputs} inputs of each target, at most {options.seconds} s each",
        "",
    ]
    for row in rows:
        short = "" if row["inputs"] >= options.inputs or row["fault"] else " (its time was up)"
        lines.append(
            f"{row['target']}: {row['inputs']} inputs in {row['seconds']:.0f} s{short}: {row['fault'] or 'no fault'}"
        )
    return "\n".join(lines) + "\n"


def commit() -> str:
    """With a mark where the sources are not those of the commit."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    dirty = subprocess.run(
        [*git, "status", "--porcelain", "--", "ops", "sandbox", "scripts"], capture_output=True, text=True, check=False
    )
    return (head.stdout.strip() or "unknown") + (" with changes" if dirty.stdout.strip() else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="json,frames,folder")
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("random", "atheris"), default="random")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    targets = options.targets.split(",")
    if unknown := sorted(set(targets) - {"json", "frames", "folder"}):
        parser.error(f"no target {unknown[0]!r}: json, frames, folder")
    if min(options.inputs, options.seconds) < 1:
        parser.error("--inputs and --seconds are 1 or more")
    if options.engine == "atheris" and importlib.util.find_spec("atheris") is None:
        sys.stderr.write("atheris is not installed: `pip install --target DIR atheris`, then PYTHONPATH=DIR\n")
        sys.exit(64)
    if options.child:
        child = atheris_child if options.engine == "atheris" else random_child
        child(targets[0], options.inputs, options.seconds, options.seed, options.child)
        return
    began, at = time.time(), commit()
    rows = []
    for target in targets:
        rows.append(campaign(target, options))
        sys.stderr.write(f"[fuzz] {target}: {rows[-1]['inputs']} inputs, {rows[-1]['fault'] or 'no fault'}\n")
    text = record(options, rows, began, at)
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)
    sys.exit(1 if any(row["fault"] for row in rows) else 0)


if __name__ == "__main__":
    main()
