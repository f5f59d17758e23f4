"""Memory that crosses the boundary by file descriptor: a sealed memfd on CPU, a CUDA VMM allocation on a GPU.

One block carries all inputs of a call, another all outputs. Both sides use this one text (copied byte for byte into
sandbox/guest). A block is made fresh for every call and its fd is sent only at t0: before that instant a guest has nothing to poll.

On CPU the judge maps, then seals: FUTURE_WRITE makes the guest's view of inputs read-only for real, and SHRINK, GROW and SEAL
stop a guest from truncating a slot under the judge (SIGBUS). Inputs leave by a read-only fd of a file that is closed to the guest's
uid, and without SHRINK: the judge cuts them to nothing after the call. Pages are charged to whoever touched them first, the judge;
with `reclaim` it has them back whatever a guest keeps mapped. On a GPU the importer chooses its access: a guest can write
whatever it maps, so nothing there is believed and expected outputs never enter such memory.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import torch

F_SEAL_FUTURE_WRITE = 0x10
"""Linux 5.1; Python 3.11 lacks the name."""
ALIGN = 256
"""Bytes; every tensor of a block starts at a multiple of it."""

DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
}


def spec_bytes(spec: dict[str, Any]) -> int:
    """Bytes of one tensor described by {"shape", "dtype"}."""
    count = 1
    for size in spec["shape"]:
        count *= size
    return int(count * DTYPES[spec["dtype"]].itemsize)


def layout(specs: list[dict[str, Any]]) -> int:
    """Give each tensor spec its "offset"; returns the block's size in bytes (at least one alignment unit)."""
    end = 0
    for spec in specs:
        spec["offset"] = end
        end += -(-spec_bytes(spec) // ALIGN) * ALIGN
    return max(end, ALIGN)


def views(base: torch.Tensor, specs: list[dict[str, Any]]) -> list[torch.Tensor]:
    """Contiguous tensors over a block's bytes, one per spec."""
    return [base[s["offset"] : s["offset"] + spec_bytes(s)].view(DTYPES[s["dtype"]]).view(s["shape"]) for s in specs]


class HostBlock:
    """A memfd mapped here. `base` is its bytes as a uint8 tensor; the mapping lives as long as any view of it."""

    def __init__(self, fd: int, size: int, writable: bool) -> None:
        self.fd, self._given, self._cut = fd, -1, False
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        # populated at once: a fault per page inside a call would be a tax that only some arms know how to avoid
        self._mapping = mmap.mmap(fd, size, mmap.MAP_SHARED | mmap.MAP_POPULATE, protection)
        self.base = torch.frombuffer(self._mapping, dtype=torch.uint8)

    @classmethod
    def create(cls, size: int) -> HostBlock:
        fd = os.memfd_create("assay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        return cls(fd, size, writable=True)

    def share(self, writable: bool) -> int:
        """Seal for the other side and return the fd to send. Our own mapping, made before, stays writable."""
        fence = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        if writable:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fence | fcntl.F_SEAL_SHRINK)
            return self.fd
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fence | F_SEAL_FUTURE_WRITE)
        os.fchmod(self.fd, 0o400)
        self._given, self._cut = os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC), True
        return self._given

    def reclaim(self) -> None:
        """Free the pages, whoever still maps them: what a guest keeps must not count against us. For the side that made the block,
        when it needs nothing of it any more. A guest that still reads its input dies of SIGBUS; an old slot reads as zeros."""
        if self._cut:
            os.ftruncate(self.fd, 0)
        else:
            self._mapping.madvise(mmap.MADV_REMOVE)

    def close(self) -> None:
        os.close(self.fd)
        if self._given >= 0:
            os.close(self._given)
        self.base = torch.empty(0, dtype=torch.uint8)


class _DeviceBytes:
    """Hands a raw device pointer to torch through the CUDA array interface."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
        }


class CudaBlock:
    """A CUDA VMM allocation mapped here, exportable as a POSIX file descriptor (legacy CUDA IPC fails between containers)."""

    def __init__(self, handle: Any, size: int, writable: bool, fd: int | None) -> None:
        from cuda.bindings import driver

        self.handle, self.size, self.fd = handle, size, fd
        self.pointer = _check(driver.cuMemAddressReserve(size, 0, 0, 0))
        _check(driver.cuMemMap(self.pointer, size, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = torch.cuda.current_device()
        flags = driver.CUmemAccess_flags
        access.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        _check(driver.cuMemSetAccess(self.pointer, size, [access], 1))
        self.base = torch.as_tensor(_DeviceBytes(int(self.pointer), size), device="cuda")

    @classmethod
    def create(cls, size: int) -> CudaBlock:
        from cuda.bindings import driver

        properties = _properties(driver)
        minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        unit = _check(driver.cuMemGetAllocationGranularity(properties, minimum))
        size = -(-size // unit) * unit
        return cls(_check(driver.cuMemCreate(size, properties, 0)), size, writable=True, fd=None)

    @classmethod
    def adopt(cls, fd: int, size: int, writable: bool) -> CudaBlock:
        from cuda.bindings import driver

        posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        return cls(_check(driver.cuMemImportFromShareableHandle(fd, posix)), size, writable, fd)

    def share(self, writable: bool) -> int:
        """The fd to send. Read-only cannot be enforced on a GPU: the importer chooses."""
        from cuda.bindings import driver

        posix = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        self.fd = int(_check(driver.cuMemExportToShareableHandle(self.handle, posix, 0)))
        return self.fd

    def reclaim(self) -> None:
        """Nothing: the driver keeps an allocation until its last importer is gone, and no cgroup counts it."""

    def close(self) -> None:
        from cuda.bindings import driver

        self.base = torch.empty(0, dtype=torch.uint8)
        _check(driver.cuMemUnmap(self.pointer, self.size))
        _check(driver.cuMemAddressFree(self.pointer, self.size))
        _check(driver.cuMemRelease(self.handle))
        if self.fd is not None:
            os.close(self.fd)


def _properties(driver: Any) -> Any:
    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = torch.cuda.current_device()
    properties.requestedHandleTypes = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


def _check(result: Any) -> Any:
    """Unpack a driver call's (error, value...) or raise with the error's name."""
    error, *values = result
    if int(error) != 0:
        raise RuntimeError(f"CUDA driver: {error!r}")
    return values[0] if values else None


Block = HostBlock | CudaBlock


def create(device: str, size: int) -> Block:
    """A fresh block of this side, `size` bytes (a GPU rounds up to its granularity: see `Block.base`)."""
    return CudaBlock.create(size) if device == "cuda" else HostBlock.create(size)


def adopt(device: str, fd: int, size: int, writable: bool) -> Block:
    """A block received by fd, mapped here."""
    return CudaBlock.adopt(fd, size, writable) if device == "cuda" else HostBlock(fd, size, writable)
