"""The way on from each refusal: for every reason why something was not promoted, what its author can do about it.

docs/reasons.md shows it. It stands beside `ops.decide.reasons` rather than in it: a reason's meaning is for ever, advice may get
better, and decision code is identified by the digest of its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_NOISE = (
    "measure on a quieter machine (nothing else running, fixed clocks), or give --blocks, --calls or --max-pairs more"
)
_OURS = "nothing is wrong with the kernel; run it again"

OF_CANDIDATE: Mapping[str, str] = MappingProxyType(
    {
        "provider-error": "run the --command program by hand with the recorded prompt on stdin; it must end with code 0",
        "provider-timeout": "give --provider-timeout-s more, or make the program faster",
        "bad-reply": "print exactly one JSON object with a `source` on stdout; logs belong on stderr",
        "duplicate": "propose other code: comments, blank lines and spacing make no difference",
        "too-large": "a kernel is one file of at most 256 KiB",
        "syntax": "see the line that is named; the file must be UTF-8 Python",
        "no-entry": "define a top-level function with the name that task.py gives as ENTRY",
        "build-error": "import the file where torch and triton are all there is; other packages are not in the sandbox",
        "build-timeout": "move work out of the import",
        "build-oom": "allocate nothing at import time",
        "wrong": "compare with `reference` of task.py on the case that is named, odd sizes and hidden inputs included",
        "nan": "look for a division by zero, an overflow in half precision, or masked elements that enter a sum",
        "unwritten": "write every element: check the grid, the masks at the edge, and the shape that is returned",
        "early-done": "leave no thread and no stream at work when the function returns",
        "shape": "return what `reference` returns: as many tensors, with the same shapes and dtypes",
        "interpreter-unsupported": "judge it on a GPU (--device cuda)",
        "crashed": "see what it said; run the function on the case's inputs where torch and triton are all there is",
        "call-timeout": "find the endless loop, or use a smaller case: a call has 30 s (`call_timeout_s` in docs/settings.md)",
        "out-of-memory": "allocate less, or use a smaller case",
        "pids-limit": "start no processes, and fewer threads",
        "protocol": "leave the shim's file descriptors and modules alone",
        "not-frozen": "start no processes of your own",
        "output-limit": "print nothing",
        "bundle-tampered": "write to no file but those in /tmp",
        "sabotage": "do nothing while another arm is timed; on a shared machine look for a neighbour's load first",
        "slower": "it is right and not fast enough: another approach is needed",
        "not-better": "it is right and no faster: another approach is needed",
        "below-min-speedup": "it is right, and faster by too little; --min-speedup says how much is asked for",
        "case-regression": "look at the case that is named: it is slower there than the baseline",
        "unstable": "its own times vary; if the machine is busy, measure on a quieter one, or give --max-cv more",
        "no-case-left": "see which calls were wrong",
        "ambiguous": f"the gain is within the noise; {_NOISE}",
        "noisy": _NOISE,
        "drift": "the baseline's speed changed meanwhile (clocks, a neighbour); run it again on a quiet machine",
        "baseline-wrong": "the baseline or the incumbent gave a wrong output beside it: check that baseline",
        "incomplete": _OURS,
        "grade-mixed": _OURS,
        "revalidation-failed": f"the first measurement was luck, or it is wrong on hidden inputs; {_NOISE}",
    }
)

OF_EPISODE: Mapping[str, str] = MappingProxyType(
    {
        "wrong": "mend the bundle: kernel.py and `reference` of task.py disagree",
        "nan": "mend the bundle: kernel.py gives NaN or infinity where `reference` of task.py does not",
        "unwritten": "mend the bundle: kernel.py does not write its whole output",
        "early-done": "mend the bundle: kernel.py leaves work running when it returns",
        "guest-error": "mend the bundle: kernel.py raises on what `make_inputs` of task.py returns",
        "guest-died": "mend the bundle: kernel.py ends its process",
        "timeout": "mend the bundle: kernel.py takes too long for one call; use smaller cases",
        "protocol": "mend the bundle: kernel.py disturbs the shim it runs in",
        "shape": "mend the bundle: kernel.py and `reference` of task.py return other shapes, dtypes or numbers of tensors",
        "starved": "use smaller cases in cases.json: the judge had no memory left",
        "not-frozen": "mend the bundle: kernel.py starts processes that cannot be stopped",
        "baseline-crashed": "mend kernel.py: it must import where torch and triton are all there is (`assay doctor` shows which)",
        "task-error": "mend task.py: the line names the function and what it raised; docs/bundles.md says what each must return",
        "baseline-unstable": "nothing is wrong with the bundle: measure on a quieter machine, or give --aa-pairs or --blocks more",
        "incomplete": "nothing is wrong with the bundle: run it again",
        "bundle-tampered": "something wrote into the frozen bundle: that must not be possible; please report it",
        "no-candidate-promoted": "the reason of each candidate is above",
        "finalist-revalidation-failed": f"what was promoted did not hold; {_NOISE}",
        "baseline-refused": "see the baseline's line",
        "faults": "see the faults in `assay log show`, and what `assay doctor` says; nothing is said about any kernel",
    }
)
