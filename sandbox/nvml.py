"""What the driver says about one GPU, asked from the host and by UUID: who is on it, how much memory is taken, is it healthy.

Only reading functions of NVML are called, never a setter, and NVML makes no CUDA context: looking changes nothing. A value that a
GPU does not offer is None, never a guess. pids are as the driver counts them: where we run in a pid namespace of our own they may
name nobody here, and the list may be empty though somebody is there; `memory_used_bytes` then is the only sign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sandbox.api import SandboxFault


class NvmlAbsent(SandboxFault):
    """No NVML on this host (no driver, or its library is not found): nothing can be said about a GPU."""


class GpuUnreadable(SandboxFault):
    """NVML is there, but this GPU does not answer: lost, in need of a reset, or unknown to the driver."""


@dataclass(frozen=True)
class Process:
    """Somebody with a context on the GPU."""

    pid: int
    memory_bytes: int | None
    kind: Literal["compute", "graphics"]


@dataclass(frozen=True)
class Reading:
    """One look at one GPU."""

    uuid: str
    name: str
    driver: str
    pci: str
    """Like `0000:19:00.0`, lower case."""
    memory_used_bytes: int
    memory_total_bytes: int
    processes: tuple[Process, ...] = ()
    ecc_uncorrected: int | None = None
    """Since the driver was loaded; None where the GPU has no ECC or does not tell."""
    repair_pending: bool | None = None
    """A memory page or row waits for a reset to be replaced, or could not be. None where the GPU does not tell."""
    sm_mhz: int | None = None
    temperature_c: int | None = None

    def facts(self) -> dict[str, Any]:
        """For an event: plain values only."""
        return {**asdict(self), "processes": [asdict(process) for process in self.processes]}


def read(uuid: str) -> Reading:
    """Look once. Raises NvmlAbsent, GpuUnreadable."""
    with _handle(uuid) as (nvml, handle):
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return Reading(
            uuid=uuid,
            name=_text(nvml.nvmlDeviceGetName(handle)),
            driver=_text(nvml.nvmlSystemGetDriverVersion()),
            pci=pci(_text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
            memory_used_bytes=int(memory.used),
            memory_total_bytes=int(memory.total),
            processes=(
                *_processes(nvml.nvmlDeviceGetComputeRunningProcesses(handle), "compute"),
                *_processes(_offered(nvml, nvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or [], "graphics"),
            ),
            ecc_uncorrected=_offered(
                nvml,
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            repair_pending=_repair_pending(nvml, handle),
            sm_mhz=_offered(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            temperature_c=_offered(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        )


def uuids() -> list[str]:
    """The GPUs of this host. Raises NvmlAbsent."""
    with _library() as nvml:
        count = nvml.nvmlDeviceGetCount()
        return [_text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))) for index in range(count)]


class XidEvents:
    """The driver's own queue of Xids of one GPU, from the moment this exists. Close it."""

    def __init__(self, uuid: str) -> None:
        """Raises NvmlAbsent, GpuUnreadable (also where the driver offers no such events)."""
        self._open = _handle(uuid)
        self._nvml, handle = self._open.__enter__()
        self._set: Any = None
        try:
            self._set = self._nvml.nvmlEventSetCreate()
            self._nvml.nvmlDeviceRegisterEvents(handle, self._nvml.nvmlEventTypeXidCriticalError, self._set)
        except self._nvml.NVMLError as error:
            self.close()
            raise GpuUnreadable(f"GPU {uuid}: no Xid events: {error}") from error

    def drain(self) -> list[int]:
        """The Xids that came since the last call, oldest first. Does not wait. Raises GpuUnreadable."""
        found: list[int] = []
        while len(found) < 1000:
            try:
                event = self._nvml.nvmlEventSetWait_v2(self._set, 0)
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                    return found
                raise GpuUnreadable(f"Xid events: {error}") from error
            found.append(int(event.eventData))
        return found

    def close(self) -> None:
        if self._set is not None:
            with suppress(self._nvml.NVMLError):  # of a GPU that is gone; the set was ours alone
                self._nvml.nvmlEventSetFree(self._set)
            self._set = None
        self._open.__exit__(None, None, None)


def pci(text: str) -> str:
    """NVML writes `00000000:19:00.0`, the kernel log `0000:19:00`; here the domain has four digits, in lower case."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


@contextmanager
def _library() -> Iterator[Any]:
    import pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError) as error:
        raise NvmlAbsent(f"no NVML on this host: {error}") from error
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def _handle(uuid: str) -> Iterator[tuple[Any, Any]]:
    with _library() as nvml:
        try:
            yield nvml, nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            raise GpuUnreadable(f"GPU {uuid} does not answer: {error}") from error


def _offered(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """None where this GPU, driver or user is not offered the value; every other error is one."""
    try:
        return function(*arguments)
    except nvml.NVMLError as error:
        absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if error.value in absent:
            return None
        raise


def _repair_pending(nvml: Any, handle: Any) -> bool | None:
    rows = _offered(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    if rows is not None:
        return bool(rows[2] or rows[3])
    pages = _offered(nvml, nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
    return None if pages is None else bool(pages)


def _processes(found: list[Any], kind: Literal["compute", "graphics"]) -> Iterator[Process]:
    for process in found:
        yield Process(int(process.pid), process.usedGpuMemory, kind)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
