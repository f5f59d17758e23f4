"""`python -m runner.gpucheck --engine docker|bwrap [--out DIR]`: the faulty programs of `rows` on this host's GPU.

Exit code 0 when every row holds, 1 when one does not, 69 without a GPU or a sandbox, 70 when something of ours failed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from images.api import ImageFault
from images.host import host_image
from runner import devices, exits, host
from runner.gpucheck import report
from runner.gpucheck.check import Check
from sandbox import gpulock
from sandbox.api import SandboxError, SandboxUnavailable
from sandbox.find import find

LOCK_WAIT_S = 10.0


def main(arguments: list[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    try:
        return _check(asked)
    except exits.RunnerError as problem:
        return _refused(str(problem), problem.code)
    except (SandboxUnavailable, ImageFault) as problem:
        return _refused(str(problem), exits.UNAVAILABLE)
    except SandboxError as error:
        return _refused(str(error), exits.FAULT)


def _check(asked: argparse.Namespace) -> int:
    if not 0 < asked.budget_s < 86400:
        raise exits.UsageError(f"--budget-s {asked.budget_s:g}: a number of seconds above 0")
    known = [found["uuid"] for found in devices.gpus()]
    uuid = asked.gpu or next(iter(known), None)
    if uuid not in known or uuid is None:
        raise exits.Unavailable("no GPU: not run" if not known else f"no GPU {uuid}: not run ({', '.join(known)})")
    sandbox = find(asked.engine)
    image = host_image(host.guest_python(asked.guest_python), docker=sandbox.name == "docker")
    check = Check(sandbox, image, uuid, _say, asked.budget_s)
    with gpulock.held(uuid, "gpucheck", LOCK_WAIT_S):
        results = check.run()
    table = report.table(results)
    sys.stdout.write(table)
    sys.stdout.flush()
    if asked.out:
        _write(asked.out, {"table.txt": table, "results.json": report.document(results, check.environment())})
    return exits.WINNER if all(result.ok for result in results) else 1


def _write(folder: Path, files: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        raise exits.CannotCreate(f"--out {folder}: {error.strerror}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runner.gpucheck", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--engine", choices=("auto", "docker", "bwrap"), default="auto", help="sandbox engine")
    parser.add_argument("--out", type=Path, help="folder for results.json and table.txt")
    parser.add_argument("--gpu", help="UUID; the first one else")
    parser.add_argument("--guest-python", type=Path, help="interpreter with torch and triton")
    parser.add_argument("--budget-s", type=float, default=150.0, help="rows that do not fit are named and fail")
    return parser


def _say(line: str) -> None:
    sys.stderr.write(f"[gpucheck] {line}\n")
    sys.stderr.flush()


def _refused(line: str, code: int) -> int:
    _say(line.splitlines()[0])
    return code


if __name__ == "__main__":
    sys.exit(main())
