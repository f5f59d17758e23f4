"""What the gate asks of the host: locks between processes, NVML by a stand-in library, Xids in a kernel log, the probe's ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from images.api import Image
from images.host import host_image
from sandbox import gpueyes, gpulock, nvml, policy, xid
from sandbox.api import Captured, Outcome, SandboxFault
from sandbox.fakegpu import UUID

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("ASSAY_GUEST_PYTHON", ROOT / ".guest" / "bin" / "python"))
HOLD = """
import sys, time
from pathlib import Path
from sandbox import gpulock
with gpulock.held(sys.argv[1], "unit u7", 5.0, Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(60)
"""


# --- the lock ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, UUID, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_another_process_waits_in_vain_and_learns_for_whom(holder, tmp_path) -> None:
    began = time.monotonic()
    with pytest.raises(gpulock.GpuBusy, match=rf"held by pid {holder.pid} \(unit u7\); waited 0.2 s"):
        gpulock.held(UUID, "u8", 0.2, tmp_path).__enter__()
    assert time.monotonic() - began < 5


def test_the_kernel_lets_go_for_a_dead_holder(holder, tmp_path) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    with gpulock.held(UUID, "u8", 5.0, tmp_path):
        assert b"u8" in (tmp_path / f"gpu-{UUID}.lock").read_bytes()


def test_two_gpus_are_two_locks_and_an_end_frees_one(tmp_path) -> None:
    other = UUID.replace("0a1b", "ffff")
    with gpulock.held(UUID, "a", 0.0, tmp_path), gpulock.held(other, "b", 0.0, tmp_path):
        pass
    with gpulock.held(UUID, "c", 0.0, tmp_path):
        pass


@pytest.mark.parametrize("uuid", ["", "GPU-1", "../x", UUID + "\n", f"{UUID}/.."])
def test_only_a_uuid_names_a_lock(uuid, tmp_path) -> None:
    with pytest.raises(SandboxFault, match="no GPU UUID"):
        gpulock.held(uuid, "u", 0.0, tmp_path).__enter__()
    assert list(tmp_path.iterdir()) == []


def test_a_planted_link_is_not_followed(tmp_path) -> None:
    (tmp_path / f"gpu-{UUID}.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(SandboxFault):
        gpulock.held(UUID, "u", 0.0, tmp_path).__enter__()
    assert not (tmp_path / "victim").exists()


def test_a_folder_that_others_can_write_is_refused(tmp_path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(SandboxFault, match="only we can write"):
        gpulock.private(tmp_path / "open")
    assert gpulock.private(tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


# --- NVML -------------------------------------------------------------------------------------------------------------


class StandIn(SimpleNamespace):
    """As much of pynvml as is used, with the names of the real one; any name that sets something is absent."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"code {value}")
            self.value = value


def library(**changed) -> StandIn:
    import pynvml

    def none(*_):
        raise StandIn.NVMLError(3)

    names = {
        n: getattr(pynvml, n) for n in dir(pynvml) if n.startswith("NVML_") and isinstance(getattr(pynvml, n), int)
    }
    functions = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
        "nvmlDeviceGetMemoryInfo": lambda _: SimpleNamespace(used=7, total=9),
        "nvmlDeviceGetName": lambda _: b"NVIDIA H200",
        "nvmlSystemGetDriverVersion": lambda: "580.95.05",
        "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId=b"00000000:AB:00.0"),
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [SimpleNamespace(pid=12, usedGpuMemory=None)],
        "nvmlDeviceGetGraphicsRunningProcesses": none,
        "nvmlDeviceGetTotalEccErrors": lambda *_: 4,
        "nvmlDeviceGetRemappedRows": lambda _: (1, 0, 1, 0),
        "nvmlDeviceGetRetiredPagesPendingStatus": none,
        "nvmlDeviceGetClockInfo": lambda *_: 1980,
        "nvmlDeviceGetTemperature": lambda *_: 33,
    }
    assert all(hasattr(pynvml, name) for name in functions)
    return StandIn(**names, **functions | changed)


def test_a_reading_says_what_the_driver_says(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", library())
    seen = nvml.read(UUID)
    assert (seen.name, seen.pci, seen.memory_used_bytes, seen.ecc_uncorrected, seen.repair_pending) == (
        "NVIDIA H200", "0000:ab:00.0", 7, 4, True,
    )  # fmt: skip
    assert seen.processes == (nvml.Process(12, None, "compute"),)
    json.dumps(seen.facts())


def test_what_a_gpu_does_not_offer_is_none(monkeypatch) -> None:
    none = library().nvmlDeviceGetGraphicsRunningProcesses
    bare = library(nvmlDeviceGetTotalEccErrors=none, nvmlDeviceGetRemappedRows=none, nvmlDeviceGetClockInfo=none)
    monkeypatch.setitem(sys.modules, "pynvml", bare)
    seen = nvml.read(UUID)
    assert (seen.ecc_uncorrected, seen.repair_pending, seen.sm_mhz, seen.temperature_c) == (None, None, None, 33)


def test_a_lost_gpu_and_an_absent_library_are_two_errors(monkeypatch) -> None:
    def lost(_):
        raise StandIn.NVMLError(15)

    def absent():
        raise StandIn.NVMLError(12)

    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlDeviceGetMemoryInfo=lost))
    with pytest.raises(nvml.GpuUnreadable, match="does not answer: code 15"):
        nvml.read(UUID)
    monkeypatch.setitem(sys.modules, "pynvml", library(nvmlInit=absent))
    with pytest.raises(nvml.NvmlAbsent, match="code 12"):
        nvml.read(UUID)


def test_xid_events_are_drained_and_their_end_is_no_error(monkeypatch) -> None:
    queue = [31, 43]

    def wait(_, timeout_ms):
        assert timeout_ms == 0
        if not queue:
            raise StandIn.NVMLError(10)
        return SimpleNamespace(eventData=queue.pop(0))

    events = {
        "nvmlEventSetCreate": object,
        "nvmlDeviceRegisterEvents": lambda *_: None,
        "nvmlEventSetFree": lambda _: None,
    }
    known = library(**events, nvmlEventSetWait_v2=wait, nvmlEventTypeXidCriticalError=8)
    monkeypatch.setitem(sys.modules, "pynvml", known)
    log = xid.HostWatch(UUID, "0000:ab:00.0", Path("/nonexistent")).close()
    assert [x.number for x in log.seen] == [31, 43]
    assert dict(log.sources) == {"kmsg": "not readable: No such file or directory", "nvml": "read"}


def test_the_reader_never_names_a_setter() -> None:
    text = (ROOT / "sandbox" / "nvml.py").read_text()
    assert [word for word in ("nvmlDeviceSet", "nvmlDeviceReset", "nvmlDeviceClear") if word in text] == []


# --- Xids -------------------------------------------------------------------------------------------------------------

KERNEL_LOG = [
    "3,1,2,-;NVRM: Xid (PCI:0000:19:00): 31, pid=4242, name=python, Ch 00000008, MMU Fault",
    "3,2,3,-;NVRM: Xid (PCI:0000:1A:00): 79, GPU has fallen off the bus.",
    "3,3,4,-;NVRM: Xid (PCI:0000:19:00.0): 119, Timeout waiting for RPC",
    # what a guest can make the kernel write: it chooses the name of the file in which it crashes
    "4,4,5,-;python3[77]: segfault at 0 ip 0 sp 0 error 4 in NVRM: Xid (PCI:0000:19:00): 79, x[7f0000000000+1000]",
    "12,5,6,-;NVRM: Xid (PCI:0000:19:00): 79, written to /dev/kmsg by a program",
    "6,4,5,-;usb 1-1: new device",
]


def test_a_kernel_log_gives_the_xids_of_one_gpu() -> None:
    found = xid.parse(KERNEL_LOG, "0000:19:00.0")
    assert [(x.number, x.kind) for x in found] == [(31, "application"), (119, "reset")]
    assert "pid=4242" in found[0].text
    assert [x.number for x in xid.parse(KERNEL_LOG, "0000:1a:00.0")] == [79]


def test_no_xid_is_of_two_classes() -> None:
    assert frozenset() == xid.APPLICATION & xid.RESET


def test_a_watch_reads_only_what_came_after_it_began(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(xid.nvml, "XidEvents", lambda uuid: (_ for _ in ()).throw(nvml.NvmlAbsent("none here")))
    log = tmp_path / "kmsg"
    log.write_text(KERNEL_LOG[0] + "\n")
    watch = xid.HostWatch(UUID, "0000:19:00.0", log)
    with log.open("a") as file:
        file.write(KERNEL_LOG[2] + "\n")
    seen = watch.close()
    assert ([x.number for x in seen.seen], dict(seen.sources)["kmsg"], seen.readable) == ([119], "read", True)
    assert watch.close() is seen


# --- the probe --------------------------------------------------------------------------------------------------------


def said(text: str, status="exited", code=0) -> Outcome:
    return Outcome(status, code, stdout=Captured(len(text), text.encode()))


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (said(json.dumps({"answer": gpueyes.ANSWER})), "right"),
        (said('{"answer": 1}'), "wrong"),
        (said('{"answer": "2147450880"}'), "wrong"),
        (said('{"error": "cuCtxSynchronize: CUDA error 719"}'), "failed"),
        (Outcome("signalled", signal=11), "failed"),
        (Outcome("timeout"), "hung"),
    ],
)
def test_the_probes_end_says_how_the_gpu_is(outcome, verdict) -> None:
    assert gpueyes.verdict(outcome).verdict == verdict


@pytest.mark.parametrize(
    "outcome", [said('{"cannot": "libcuda"}'), said(""), said("[]"), said("", code=1), Outcome("oom")]
)
def test_a_probe_that_did_not_run_accuses_no_gpu(outcome) -> None:
    with pytest.raises(SandboxFault, match="did not run"):
        gpueyes.verdict(outcome)


def test_the_probe_sees_its_one_gpu_and_has_a_guests_permissions() -> None:
    image = Image("host", "sha256:" + "0" * 64, "/usr/bin/python3", engine_ref="sha256:" + "0" * 64)
    job = gpueyes.HostEyes(None, image, UUID).job()  # type: ignore[arg-type]  # no engine is needed for a job
    config = policy.docker_config(job, policy.Host(gpus={UUID: ("/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm")}))
    assert [d.split(":")[0] for d in config["host"]["devices"]] == ["/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert (job.role, job.mounts[0].writable, job.limits.wall_s) == ("guest", False, gpueyes.PROBE_S)


@pytest.mark.guest
def test_the_known_kernel_is_valid_for_the_gpus_we_support(tmp_path) -> None:
    """By the assembler that triton brings; whether it computes the right sum only a GPU can say."""
    found = subprocess.run(
        [PYTHON, "-c", "import triton, os; print(os.path.dirname(triton.__file__))"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    ptxas = Path(found.stdout.strip()) / "backends" / "nvidia" / "bin" / "ptxas"
    scope: dict[str, object] = {"__name__": "probe"}
    exec((gpueyes.SHIM / "gpuprobe.py").read_text(), scope)
    (tmp_path / "k.ptx").write_bytes(scope["KERNEL"])  # type: ignore[arg-type]
    for architecture in ("sm_75", "sm_80", "sm_90", "sm_100"):
        done = subprocess.run(
            [ptxas, "-arch", architecture, tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert scope["THREADS"] * scope["BLOCKS"] == gpueyes.THREADS  # type: ignore[operator]


@pytest.mark.sandbox
@pytest.mark.conformance
@pytest.mark.parametrize("engine", ["docker", "bwrap"])
def test_in_a_container_without_a_gpu_the_probe_says_that_it_cannot_run(engine: str) -> None:
    from dataclasses import replace

    from sandbox.find import find

    eyes = gpueyes.HostEyes(find(engine), host_image(PYTHON), UUID)  # type: ignore[arg-type]
    outcome = eyes.sandbox.run(replace(eyes.job(), gpu=None))
    with pytest.raises(SandboxFault, match=r"did not run \(exited 0\): (libcuda|cuInit)"):
        gpueyes.verdict(outcome)
