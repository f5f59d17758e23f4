"""The gate's known kernel: a sum whose answer is known beforehand, on the one GPU of this container. Prints one JSON line.

It runs no candidate, and goes to the driver's own library, because importing torch would cost the gate seconds. The kernel is
written down as PTX for every GPU since Volta. A GPU that hangs keeps it from ending (the container's wall clock ends it); one that
computes wrongly makes it print another number, which the host compares.

`{"answer": n}`: what the GPU summed. `{"error": ...}`: the GPU or its driver refused. `{"cannot": ...}`: nothing can be said of the
GPU, because a library is missing, the container was shown none, or the driver does not compile this PTX.
"""

from __future__ import annotations

import ctypes
import json
import sys

THREADS, BLOCKS = 256, 256
NOT_THE_GPU = (34, 100, 218, 221, 222, 223, 803)
"""CUDA's codes for a stub library, no device shown to us, PTX that is invalid, has no compiler, is of an unknown version or may not
be compiled here, and a library that does not fit the driver."""
KERNEL = b"""
.version 6.0
.target sm_70
.address_size 64
.visible .entry total(.param .u64 where)
{
    .reg .b32 %r<5>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [where];
    cvta.to.global.u64 %d2, %d1;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    cvt.u64.u32 %d3, %r4;
    red.global.add.u64 [%d2], %d3;
    ret;
}
"""


class Refused(Exception):
    """A call of the driver that did not return 0."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: CUDA error {code}")
        self.code = code


def ask(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code != 0:
        raise Refused(name, code)


def total(cuda: ctypes.CDLL) -> int:
    """The sum of all thread numbers, added up in GPU memory by the threads themselves."""
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    where, answer = ctypes.c_uint64(), ctypes.c_uint64(0)
    size = ctypes.c_size_t(ctypes.sizeof(answer))
    ask(cuda, "cuInit", 0)
    ask(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    ask(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    ask(cuda, "cuCtxSetCurrent", context)
    ask(cuda, "cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(KERNEL))
    ask(cuda, "cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(b"total"))
    ask(cuda, "cuMemAlloc_v2", ctypes.byref(where), size)
    ask(cuda, "cuMemcpyHtoD_v2", where, ctypes.byref(answer), size)
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(where))
    shape = [ctypes.c_uint(n) for n in (BLOCKS, 1, 1, THREADS, 1, 1, 0)]
    ask(cuda, "cuLaunchKernel", function, *shape, ctypes.c_void_p(), arguments, ctypes.c_void_p())
    ask(cuda, "cuCtxSynchronize")
    ask(cuda, "cuMemcpyDtoH_v2", ctypes.byref(answer), where, size)
    return answer.value


def main() -> None:
    try:
        said: dict[str, object] = {"answer": total(ctypes.CDLL("libcuda.so.1"))}
    except OSError as error:
        said = {"cannot": str(error)[:300]}
    except Refused as error:
        said = {"cannot" if error.code in NOT_THE_GPU else "error": str(error)}
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
