"""Options that several commands share: one spelling, one help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Home = Annotated[
    Path | None, typer.Option("--home", envvar="ASSAY_HOME", help="Folder of the log and its blobs (default .assay).")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable, on stdout.")]
Name = Annotated[str, typer.Argument(metavar="EPISODE", help="Name of the episode.")]
DeviceName = Annotated[str, typer.Option("--device", metavar="cuda|cpu", help="Where kernels run.")]
Shape = Annotated[str | None, typer.Option(help="Like B=8,T=2048,D=4096 (default: the contract's).")]
Dtype = Annotated[str | None, typer.Option(metavar="fp16|bf16|fp32", help="Type of inputs and outputs (default fp16).")]
Engine = Annotated[str, typer.Option(metavar="auto|docker|bwrap", help="Sandbox engine; auto: Docker when it answers.")]
ImageName = Annotated[str, typer.Option("--image", metavar="host|cpu", help="Image of judge and guests.")]
GuestPython = Annotated[
    Path | None,
    typer.Option(envvar="ASSAY_GUEST_PYTHON", help="Interpreter with torch and triton, for the host image."),
]
MaxCandidates = Annotated[int | None, typer.Option(help="Proposals to ask for, 1 to 1024 (default 64).")]
Seed = Annotated[int | None, typer.Option(help="Seeds the search and the order of arms; never an input (default 0).")]
MinSpeedup = Annotated[
    float | None, typer.Option(help="Required speed-up over the baseline (default: the contract's).")
]
MaxCv = Annotated[
    float | None, typer.Option(help="Largest variation of a candidate's block medians (default 0.10; on a CPU 0.30).")
]
MaxPairs = Annotated[
    int | None, typer.Option(help="Most fresh pairs of processes per candidate, at least 3 (default 6).")
]
AaPairs = Annotated[
    int | None,
    typer.Option(
        help="Pairs of the baseline with itself, at least 2 (default 4); fewer than 4 often end as baseline-unstable."
    ),
]
Blocks = Annotated[int | None, typer.Option(help="Interleaved blocks per pair, at least 3 (default 6).")]
Calls = Annotated[int | None, typer.Option(help="Timed calls per block, arm and case (default 3).")]
TotalSeconds = Annotated[
    float | None, typer.Option("--max-total-seconds", help="Working time after which no proposal is asked for (3600).")
]
