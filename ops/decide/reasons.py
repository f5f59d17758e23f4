"""The closed vocabulary of why: one code per distinct cause, each with one line for people.

A code is a short literal for ever (it stands in the log). Whoever needs a new cause adds a code here; nothing else may
be used.
`CALL` judges one call, `CANDIDATE` one candidate or proposal, `EPISODE` a whole episode's baseline or end.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

CALL: Mapping[str, str] = MappingProxyType(
    {
        "": "the output was right",
        "wrong": "an output element is outside its tolerance",
        "nan": "an output holds NaN or infinity where the expected one is finite",
        "unwritten": "an output still holds the fill that stood there before the call",
        "early-done": "the output changed after the guest had said that it was done",
        "guest-error": "the candidate raised an exception",
        "guest-died": "the guest's process ended during the call",
        "timeout": "the call did not end within its limit",
        "protocol": "the guest broke the wire protocol",
        "shape": "the output has the wrong number, shape or dtype",
        "starved": "no memory was left for the judge while the guest lived",
        "not-frozen": "the guest's processes could not be stopped for another arm's turn",
    }
)

CANDIDATE: Mapping[str, str] = MappingProxyType(
    {
        # before anything is run
        "provider-error": "the provider failed or gave no usable reply",
        "provider-timeout": "the provider did not answer within its limit",
        "bad-reply": "the provider's reply is not one valid candidate object",
        "duplicate": "the same source, apart from comments and spacing, was tried before",
        "too-large": "the source is larger than the limit",
        "syntax": "the source is not valid Python text",
        # build
        "no-entry": "the source does not define the entry point",
        "build-error": "the source raised an exception when it was imported, or a kernel of it does not compile",
        "build-timeout": "the build did not end within its limit",
        "build-oom": "the build used more memory than its limit",
        # outputs
        "wrong": "an output of a protected case is wrong",
        "nan": "an output of a protected case holds NaN or infinity where the expected one is finite",
        "unwritten": "an output of a protected case was not wholly written",
        "early-done": "it said that it was done before its output was final",
        "shape": "an output has the wrong number, shape or dtype",
        "interpreter-unsupported": "the CPU interpreter cannot run this correctly; a GPU may",
        # behaviour
        "crashed": "it raised an exception or its process ended during a call",
        "call-timeout": "a call did not end within its limit",
        "out-of-memory": "it used more memory than its limit",
        "pids-limit": "it started more processes than its limit",
        "protocol": "it broke the wire protocol",
        "not-frozen": "its processes could not be stopped while another arm was timed",
        "output-limit": "it printed more than its limit",
        "bundle-tampered": "the frozen bundle or a projection of it changed while it ran",
        "sabotage": "the baseline was slow only while the candidate was alive",
        # speed
        "slower": "clearly slower than the incumbent in every pair so far",
        "not-better": "the whole interval lies below the incumbent",
        "below-min-speedup": "the whole interval lies below the required speed-up",
        "case-regression": "a protected case is slower than the limit allows, with confidence",
        "unstable": "its times vary more than allowed, beside a steady baseline",
        "no-case-left": "every case that counts was wrong",
        # not known
        "ambiguous": "the interval contains 'no better' or the required speed-up",
        "noisy": "the machine was too noisy to judge: the baseline varied more than allowed too",
        "drift": "the baseline alone changed its speed during the pair and stayed there: no evidence on speed",
        "rivals": "the baseline was slow beside candidate and incumbent: which did it is unknown, no evidence on speed",
        "baseline-wrong": "the baseline or the incumbent was wrong beside it: no evidence on speed",
        "incomplete": "a pair lacks calls that the comparison needs: no evidence on speed",
        "grade-mixed": "pairs of different grades of evidence are never compared: no evidence on speed",
        # the end
        "promoted": "right on every call, and faster beyond doubt",
        "revalidated": "rebuilt and measured again with fresh seeds and hidden inputs, it still holds",
        "revalidation-failed": "rebuilt and measured again, the speed-up did not hold",
    }
)

EPISODE: Mapping[str, str] = MappingProxyType(
    {
        **{code: f"the baseline itself: {text}" for code, text in CALL.items() if code},
        "baseline-crashed": "the baseline does not build or its process ended",
        "task-error": "the bundle's task.py raises, or answers with what no kernel can be held against",
        "baseline-unstable": "identical baselines differ too much for any comparison",
        "incomplete": "an A/A pair lacks calls that the calibration needs",
        "bundle-tampered": "the frozen bundle changed while the baseline ran",
        "finalist-revalidated": "the finalist held in its revalidation",
        "no-candidate-promoted": "no candidate was better beyond doubt",
        "finalist-revalidation-failed": "no promoted candidate held in its revalidation",
        "baseline-refused": "the bundle's own baseline cannot be compared with",
        "faults": "our own failures ended the episode; no verdict is implied",
    }
)

REASONS: Mapping[str, str] = MappingProxyType({**EPISODE, **CANDIDATE})
"""Every code that may stand as a `reason` in the log."""

_OF_CALL = {"starved": "out-of-memory", "guest-error": "crashed", "guest-died": "crashed", "timeout": "call-timeout"}
_OF_STATUS = {
    "oom": "out-of-memory",
    "output-limit": "output-limit",
    "pids-limit": "pids-limit",
    "timeout": "call-timeout",
    "signalled": "crashed",
}


def of_call(why: str, outcome: Mapping[str, Any]) -> str:
    """The candidate's reason for a call that was not right.

    When the guest was lost, what the sandbox saw from outside (`outcome["status"]`) is more exact than what the judge
    saw. A code that is not in the vocabulary counts as `wrong`: never as right.
    """
    if why in ("guest-died", "protocol"):
        seen = of_outcome(outcome)
        if seen:
            return seen
    return _OF_CALL.get(why, why if why in CALL and why else "wrong")


def of_outcome(outcome: Mapping[str, Any]) -> str:
    """The candidate's reason for how its container ended; "" when it ended by itself or because we ended it."""
    return _OF_STATUS.get(str(outcome.get("status", "")), "")
