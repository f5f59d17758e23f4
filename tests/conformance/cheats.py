"""Cheating candidates, as complete kernel sources: the honest baseline with a trick appended, so that any gain is the trick's.

Each knows our shim (white box): it walks frames to the shim's socket, memory and slots, because nothing in a guest is secret.
`EXPECTED` says how each must end: the verdicts that are allowed and, for a rejection, the reasons.
"""

from __future__ import annotations

from ops import registry

SHAPE = {"B": 1, "T": 16, "D": 512}
"""Small: a call takes some milliseconds in the interpreter, and there are many calls."""

HONEST = registry.get("rmsnorm").baseline().decode()

SHIM = '''
import sys as _sys
_honest = rmsnorm

def _shim():
    """Locals of the shim's frame that called the entry: sock, slots, order."""
    frame = _sys._getframe(2)
    while "slots" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals
'''

TIMER_PATCH = """
# F07: every clock and event in this process runs a hundred times slower
import time as _time
import torch as _torch
for _name in ("perf_counter", "monotonic", "time", "process_time"):
    _clock = getattr(_time, _name)
    setattr(_time, _name, lambda _clock=_clock: _clock() / 100)
for _name in ("perf_counter_ns", "monotonic_ns", "time_ns"):
    _clock = getattr(_time, _name)
    setattr(_time, _name, lambda _clock=_clock: _clock() // 100)
_torch.cuda.Event.elapsed_time = lambda self, end: 0.001
_torch.cuda.synchronize = lambda *a, **k: None
"""

STATISTICS_PATCH = """
# F08: whatever summarises or serialises here reports a splendid result
import json as _json
import statistics as _statistics
_statistics.mean = _statistics.median = _statistics.fmean = lambda values: 1e-9
_dumps = _json.dumps
def _splendid(value, *a, **k):
    if isinstance(value, dict) and "done" in value:
        value = {**value, "ns": 1, "speedup": 100.0, "passed": True}
    return _dumps(value, *a, **k)
_json.dumps = _splendid
"""

CACHED_OUTPUT = """
# F30 to F32: the first answer for a shape is served for ever
_first = {}
_compute = rmsnorm
def rmsnorm(x, weight):
    key = (tuple(x.shape), x.dtype)
    if key not in _first:
        _first[key] = _compute(x, weight)
    return _first[key]
"""

LAZY_TENSOR = """
# F05: a tensor subclass that computes when somebody looks at it
_compute = rmsnorm
class _Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        args = [a._make() if isinstance(a, _Lazy) else a for a in args]
        return function(*args, **(kwargs or {}))
    def _make(self):
        return _compute(*self._inputs)
    @property
    def shape(self):
        return self._inputs[0].shape
    @property
    def dtype(self):
        return self._inputs[0].dtype
def rmsnorm(x, weight):
    lazy = torch.empty(0).as_subclass(_Lazy)
    lazy._inputs = (x, weight)
    return lazy
"""

INPUT_MUTATION = """
# F28: zero the inputs under the judge's feet, so that zeros are the right answer
import ctypes as _ctypes, mmap as _mmap, os as _os
def rmsnorm(x, weight):
    libc = _ctypes.CDLL(None, use_errno=True)
    page = x.data_ptr() & ~4095
    size = x.numel() * x.element_size() + 4096
    libc.mprotect(_ctypes.c_void_p(page), _ctypes.c_size_t(size), 3)
    for fd in _os.listdir("/proc/self/fd"):
        try:
            again = _os.open(f"/proc/self/fd/{fd}", _os.O_RDWR)
            if "memfd:assay" in _os.readlink(f"/proc/self/fd/{fd}"):
                _os.pwrite(again, bytes(x.numel() * x.element_size()), 0)
                _mmap.mmap(again, 4096, _mmap.MAP_SHARED, 3)[:] = bytes(4096)
        except (OSError, ValueError):
            pass
    try:
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(x.data_ptr())
            memory.write(bytes(x.numel() * x.element_size()))
    except OSError:
        pass
    return torch.zeros_like(x)
"""

PLAIN_MUTATION = """
# F28, without finesse: the mapping is read-only, so this is the candidate's own crash
def rmsnorm(x, weight):
    x.zero_()
    return torch.zeros_like(x)
"""

LATE_THREAD = (
    SHIM
    + """
# F03: return at once; a thread fills the slot while the judge is busy
import threading as _threading
def rmsnorm(x, weight):
    slot = _shim()["slots"][0]
    _threading.Thread(target=lambda: slot.copy_(_honest(x, weight)), daemon=True).start()
    return torch.empty_like(x)
"""
)

EARLY_DONE = (
    SHIM
    + """
# right outputs, wrong time: say "done" first and run ahead of the judge's copy
try:
    import wire as _wire
    _send = _wire.send
    def _swallow(sock, message, fds=()):
        if "done" not in message:
            _send(sock, message, fds)
    _wire.send = _swallow
except ImportError:
    pass  # the build container has no shim; nothing is timed there
def rmsnorm(x, weight):
    shim = _shim()
    _send(shim["sock"], {"done": shim["order"]["n"]})
    result = _honest(x, weight)
    shim["slots"][0].copy_(result)
    return result
"""
)

EARLY_START = (
    SHIM
    + """
# peek at the socket for fds ahead of the shim; start computing at once
import array as _array, mmap as _mmap, os as _os, socket as _socket, threading as _threading
_ahead = {}
_one = _threading.Lock()  # the interpreter is not thread-safe
def _compute_ahead(raw, x, weight):
    # both inputs lie in one block, each at a multiple of 256 bytes
    nbytes = x.numel() * x.element_size()
    at = -(-nbytes // 256) * 256
    new_x = torch.frombuffer(bytearray(raw[:nbytes]), dtype=x.dtype).view(x.shape)
    new_weight = torch.frombuffer(bytearray(raw[at : at + weight.numel() * 4]), dtype=weight.dtype)
    with _one:
        _ahead[new_x.numpy().tobytes()] = _honest(new_x, new_weight)
def _watch(sock, size, x, weight):
    for _ in range(20000):
        try:
            raw, rights, _, _ = sock.recvmsg(64, _socket.CMSG_SPACE(16), _socket.MSG_PEEK | _socket.MSG_DONTWAIT)
        except OSError:
            continue
        for _, _, data in rights:
            fds = _array.array("i", data)
            early = _mmap.mmap(fds[0], size, _mmap.MAP_SHARED, _mmap.PROT_READ) if b'"go"' in raw else None
            for fd in fds:
                _os.close(fd)
            if early:
                return _compute_ahead(early[:size], x, weight)
def rmsnorm(x, weight):
    with _one:
        result = _ahead.pop(x.numpy().tobytes(), None)
        if result is None:
            result = _honest(x, weight)
    shim = _shim()
    size = shim["order"]["in_bytes"]
    _threading.Thread(target=_watch, args=(shim["sock"], size, x, weight), daemon=True).start()
    return result
"""
)

PHASE_DETECTION = """
# F13, F53: honest while it is being verified, by count of calls; then right on ordinary inputs only
_calls = {}
_compute = rmsnorm
def rmsnorm(x, weight):
    _calls[x.shape] = _calls.get(x.shape, 0) + 1
    return _compute(x if _calls[x.shape] <= 8 else x.clamp(-6, 6), weight)
"""

UNPRINTABLE_ERROR = """
# an error text that no log can store: a candidate must not be able to force a failure of ours
def rmsnorm(x, weight):
    raise ValueError("half a character: \\udcff \\x1b[2J " + "9" * 4000)
"""

FORGED_RESULT = """
# F66, F71: tell everybody who might listen that this has passed, then leave
import json as _json, os as _os
_record = _json.dumps({"ok": True, "done": 0, "passed": True, "samples": [{"n": 0, "ns": 1, "why": "", "worst": 0.0}]}).encode()
print("check: pass\\nPASS\\n" + _record.decode(), flush=True)
for _fd in _os.listdir("/proc/self/fd"):
    try:
        _os.write(int(_fd), _record)
    except OSError:
        pass
for _path in ("/tmp/result.json", "/bundle/result.json", "/link/result.json", "/tmp/reward.json"):
    try:
        open(_path, "wb").write(_record)
    except OSError:
        pass
if "wire" in __import__("sys").modules:
    _os._exit(0)
"""

FASTER = registry.get("rmsnorm").render("row_block", {"BLOCK_SIZE": 512, "num_warps": 8, "num_stages": 3}).decode()
"""The honest twin that is really faster: eight rows in one program (the interpreter pays per program)."""

HONEST_TWIN = HONEST + "\n# the baseline again: right on every call, and no gain\n_twin = 1\n"

CHEATS: dict[str, str] = {
    "timer-patch": HONEST + TIMER_PATCH,
    "statistics-patch": HONEST + STATISTICS_PATCH,
    "cached-output": HONEST + CACHED_OUTPUT,
    "lazy-tensor": HONEST + LAZY_TENSOR,
    "input-mutation": HONEST + INPUT_MUTATION,
    "plain-mutation": HONEST + PLAIN_MUTATION,
    "late-thread": HONEST + LATE_THREAD,
    "early-done": HONEST + EARLY_DONE,
    "early-start": HONEST + EARLY_START,
    "forged-result": HONEST + FORGED_RESULT,
    "phase-detection": HONEST + PHASE_DETECTION,
    "unprintable-error": HONEST + UNPRINTABLE_ERROR,
}

EXPECTED: dict[str, tuple[str, ...]] = {
    "timer-patch": (),
    "statistics-patch": ("protocol",),
    "cached-output": ("wrong",),
    "lazy-tensor": (),
    "input-mutation": ("wrong", "crashed"),
    "plain-mutation": ("crashed",),
    "late-thread": ("wrong", "early-done", "unwritten", "nan"),
    "early-done": ("early-done", "unwritten", "wrong"),
    "early-start": (),
    "forged-result": ("build-error", "crashed", "protocol"),
    "phase-detection": ("wrong", "nan"),
    "unprintable-error": ("crashed", "protocol"),
}
"""Reasons of a rejection that must come; empty: right on every call, and no gain (any verdict but `promote`)."""
