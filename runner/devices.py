"""What the measuring device was doing around a block: NVML for a GPU, load for a CPU. Recorded, never a setting changed."""

from __future__ import annotations

import os
from typing import Any

from sandbox.api import SandboxFault


def cpu_split() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(judge's CPUs, guests' CPUs), disjoint where there are two or more: a judge must not take time from what it times."""
    cpus = sorted(os.sched_getaffinity(0))
    return ((cpus[0],), tuple(cpus[1:])) if len(cpus) > 1 else (tuple(cpus), tuple(cpus))


def state(gpu: str | None) -> dict[str, Any]:
    """One reading. GPU: MHz, degrees C, W, throttle-reason bits, utilisation %, process count. CPU: load average."""
    if gpu is None:
        return {"load1": os.getloadavg()[0]}
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        return {
            "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "mem_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "throttle": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "gpu_percent": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "memory_used_mib": pynvml.nvmlDeviceGetMemoryInfo(handle).used >> 20,
            "processes": len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
    except pynvml.NVMLError as error:  # it fell off the bus, say: about the machine, never about a candidate
        raise SandboxFault(f"GPU {gpu}: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def gpus() -> list[dict[str, str]]:
    """The GPUs of this host: uuid, name, driver. Empty without NVML or without a GPU."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        # NVML's binding raises its own class or OSError depending on what is absent; "no GPU" is the answer either way
        return []
    try:
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append(
                {
                    "uuid": pynvml.nvmlDeviceGetUUID(handle),
                    "name": pynvml.nvmlDeviceGetName(handle),
                    "driver": pynvml.nvmlSystemGetDriverVersion(),
                }
            )
        return found
    finally:
        pynvml.nvmlShutdown()


def driver(gpu: str | None) -> str:
    """Version of the driver behind a GPU; empty on a CPU."""
    return next((found["driver"] for found in gpus() if found["uuid"] == gpu), "") if gpu else ""


def capability(uuid: str) -> int:
    """Compute capability of a GPU of this host, 90 for 9.0."""
    import pynvml

    pynvml.nvmlInit()
    try:
        major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        return int(10 * major + minor)
    finally:
        pynvml.nvmlShutdown()
