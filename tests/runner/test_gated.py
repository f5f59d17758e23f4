"""A measurement behind the gate: what the log gets to know, and that an ill GPU makes a fault of whatever came out of it."""

from __future__ import annotations

import pytest

from images.api import Image
from runner import gated
from runner.gated import Gated, GpuFault
from runner.sandboxlab import SandboxLab
from sandbox import gpulock
from sandbox.api import SandboxFault
from sandbox.fake import FakeSandbox
from sandbox.fakegpu import UUID, FakeGpu
from sandbox.gate import Gate
from sandbox.gpueyes import Probe
from sandbox.gpulock import GpuBusy

HUNG = Probe("hung", "the known kernel did not end")


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def passage(gpu, tmp_path) -> Gated:
    gate = Gate(gpu, records=tmp_path / "records", clock=gpu.clock, sleep=gpu.sleep)
    return Gated(gate, lock_wait_s=0.0, locks=tmp_path)


def test_both_looks_are_told_and_the_lock_is_held_between_them(passage, tmp_path) -> None:
    with passage.around("u1") as seen, pytest.raises(GpuBusy, match="u1"):
        gpulock.held(UUID, "u2", 0.0, tmp_path).__enter__()
    assert {side: found["state"] for side, found in seen.items()} == {"before": "ok", "after": "ok"}
    with passage.around("u2"):
        pass


def test_a_gpu_that_is_ill_afterwards_makes_a_fault_of_a_measurement_that_went_well(passage, gpu) -> None:
    gpu.answers = [Probe("right"), HUNG]
    with pytest.raises(GpuFault, match=r"^gpu-fault: after u1: the known kernel did not end$"), passage.around("u1"):
        pass
    entered = False
    with pytest.raises(GpuFault, match=r"^gpu-fault: before u2: .*quarantined since"), passage.around("u2"):
        entered = True
    assert not entered


def test_a_fault_of_the_measurement_passes_where_the_gpu_is_well(passage, gpu) -> None:
    with pytest.raises(SandboxFault, match=r"^the judge ended$"), passage.around("u1"):
        raise SandboxFault("the judge ended")
    assert (gpu.probes, gpu.windows) == (2, 0)


def test_a_fault_of_the_measurement_is_explained_by_an_ill_gpu(passage, gpu) -> None:
    gpu.xids.append(79)  # the fake's window finds it when it is closed
    with pytest.raises(GpuFault, match="reset-class Xid 79; besides: the judge ended"), passage.around("u1"):
        raise SandboxFault("the judge ended")


def test_an_interrupt_leaves_no_window_and_no_lock(passage, gpu, tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt), passage.around("u1"):
        raise KeyboardInterrupt
    assert (gpu.windows, gpu.probes) == (0, 1)
    with gpulock.held(UUID, "u2", 0.0, tmp_path):
        pass


IMAGE = Image("host", "sha256:" + "0" * 64, "/usr/bin/python3")


def test_on_the_cpu_there_is_no_gate() -> None:
    assert SandboxLab(FakeSandbox({}), IMAGE, "cpu").gate is None


def test_a_labs_pair_on_a_gpu_is_measured_behind_the_gate_and_says_so(passage, monkeypatch) -> None:
    from eventstore.facts import Pair

    lab = SandboxLab(FakeSandbox({}), IMAGE, "cuda", UUID)
    assert lab.gate is not None
    assert lab.gate.gate.eyes.uuid == UUID
    object.__setattr__(lab, "gate", passage)
    bare = Pair(unit="u1", grade="bracket", series=(), secret="00", device={"tax_ns": 3})
    monkeypatch.setattr(SandboxLab, "_measured", lambda *_: bare)

    class Plan:
        unit, arms = "u1", ()

    pair = lab.pair(None, Plan())  # type: ignore[arg-type]
    assert pair.device["tax_ns"] == 3
    assert pair.device["gate"]["after"]["state"] == "ok"
    monkeypatch.setattr(passage.gate.eyes, "answers", [Probe("right"), HUNG])
    with pytest.raises(GpuFault):
        lab.pair(None, Plan())  # type: ignore[arg-type]


def test_a_release_checks_the_uuid_before_anything() -> None:
    with pytest.raises(SandboxFault, match="no GPU UUID"):
        gated.release("GPU-x", FakeSandbox({}), IMAGE)
