"""The gate over a scripted GPU: each trouble it must see, what it waits for, what it records, and how a record is lifted."""

from __future__ import annotations

import json
import re

import pytest

from sandbox import gpurecords
from sandbox.api import SandboxFault
from sandbox.fakegpu import UUID, FakeGpu
from sandbox.gate import Gate, Rules
from sandbox.gpueyes import Probe
from sandbox.gpulock import GpuBusy
from sandbox.nvml import GpuUnreadable, NvmlAbsent

HUNG = Probe("hung", "the known kernel did not end within 20 s", 20.0)
WRONG = Probe("wrong", "the known kernel answered 7", 1.0)


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


@pytest.fixture
def gate(gpu, tmp_path) -> Gate:
    return Gate(gpu, Rules(), tmp_path / "records", gpu.clock, gpu.sleep)


def test_a_healthy_gpu_is_ok_on_both_sides_and_probed_on_both(gate, gpu) -> None:
    before, after = gate.before("u1"), gate.after()
    assert (before.state, after.state, gpu.probes, gpu.windows) == ("ok", "ok", 2, 0)
    assert before.xids is None
    assert after.facts()["xids"] == {"seen": [], "sources": dict(gpu.xid_sources)}
    json.dumps([before.facts(), after.facts()], allow_nan=False)


def test_a_leftover_process_that_goes_after_two_seconds_is_waited_for_and_the_wait_reported(gate, gpu) -> None:
    gate.before("u1")
    gpu.leftover_until = gpu.now + 2.0
    found = gate.after()
    assert (found.state, round(found.waited_s, 1)) == ("recovered", 2.0)
    assert gpurecords.find(UUID, gate.records) is None


def test_a_context_that_takes_a_moment_to_go_is_no_recovery(gate, gpu) -> None:
    gate.before("u1")
    gpu.leftover_until = gpu.now + 0.5
    assert gate.after().state == "ok"


def leftover(gpu: FakeGpu) -> None:
    gpu.leftover_until = gpu.now + 1e6


TROUBLES = {
    "process that stays": (leftover, "u1 ended, and GPU .* in use by pid 4242"),
    "memory that stays": (lambda g: setattr(g, "hidden_bytes", 65 << 20), "65 MiB above its idle baseline"),
    "reset-class xid": (lambda g: g.xids.extend([31, 119]), "reset-class Xid 119"),
    "ecc rise": (lambda g: setattr(g, "ecc_uncorrected", 2), "rose from 0 to 2"),
    "repair pending": (lambda g: setattr(g, "repair_pending", True), "memory repair"),
    "hung": (lambda g: g.answers.append(HUNG), "did not end within"),
    "wrong answer": (lambda g: g.answers.append(WRONG), "answered 7"),
    "failed": (lambda g: g.answers.append(Probe("failed", "cuInit: CUDA error 999")), "cuInit: CUDA error 999"),
    "lost": (lambda g: setattr(g, "trouble", GpuUnreadable("GPU is lost")), "GPU is lost"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_each_trouble_after_a_measurement_quarantines_and_nothing_starts_any_more(name, gate, gpu) -> None:
    trouble, reason = TROUBLES[name]
    gate.before("u1")
    trouble(gpu)
    found = gate.after()
    assert found.state == "quarantined"
    record = gpurecords.find(UUID, gate.records)
    assert record is not None
    assert (record.reason, record.who, gpu.windows) == (found.reason, "u1", 0)
    assert record.boot_id
    assert re.search(reason, found.reason)
    probes = gpu.probes
    again = Gate(FakeGpu(), Rules(), gate.records).before("u2")  # another runner, after this one is gone
    assert (again.state, gpu.probes) == ("quarantined", probes)
    assert found.reason in again.reason


def test_application_xids_are_recorded_and_quarantine_nothing(gate, gpu) -> None:
    gate.before("u1")
    gpu.xids.extend([31, 43, 999])
    found = gate.after()
    assert found.state == "ok"
    assert [(x["xid"], x["kind"]) for x in found.facts()["xids"]["seen"]] == [
        (31, "application"), (43, "application"), (999, "other"),
    ]  # fmt: skip


def test_xids_that_cannot_be_read_are_said_to_be_so_and_conclude_nothing(gate, gpu) -> None:
    gpu.xid_sources = (("kmsg", "not readable: denied"), ("nvml", "not readable: denied"))
    gate.before("u1")
    found = gate.after()
    assert (found.state, found.xids and found.xids.readable) == ("ok", False)


def test_errors_from_before_the_measurement_are_not_its_own(gate, gpu) -> None:
    gpu.ecc_uncorrected = 5
    gate.before("u1")
    assert gate.after().state == "ok"


def test_a_stranger_before_a_measurement_makes_the_gpu_busy_and_not_ill(gate, gpu) -> None:
    gpu.leftover_until = 1e6
    with pytest.raises(GpuBusy, match="not free after 30 s: in use by pid 4242"):
        gate.before("u1")
    assert gpurecords.find(UUID, gate.records) is None
    assert gpu.now >= 30


def test_a_stranger_whom_nvml_does_not_list_is_seen_by_the_memory(gate, gpu) -> None:
    gate.before("u1")
    gate.after()
    gpu.hidden_bytes = 1 << 30
    with pytest.raises(GpuBusy, match="1024 MiB above its idle baseline"):
        gate.before("u2")


@pytest.mark.parametrize("name", ["repair pending", "hung", "wrong answer", "lost"])
def test_an_ill_gpu_is_quarantined_before_anything_is_measured(name, gate, gpu) -> None:
    TROUBLES[name][0](gpu)
    assert gate.before("u1").state == "quarantined"
    with pytest.raises(SandboxFault, match="not passed"):
        gate.after()


def test_without_nvml_nothing_is_said_of_the_gpu(gate, gpu) -> None:
    gpu.trouble = NvmlAbsent("no NVML on this host")
    with pytest.raises(NvmlAbsent):
        gate.before("u1")
    assert gpurecords.find(UUID, gate.records) is None


def test_a_release_needs_a_passing_probe(gate, gpu) -> None:
    gate.before("u1")
    gpu.answers.append(WRONG)
    gate.after()
    gpu.answers.append(HUNG)
    with pytest.raises(SandboxFault, match=r"answered 7.*stays so: the known kernel did not end"):
        gate.release()
    assert gate.before("u2").state == "quarantined"
    assert "is released" in gate.release()
    assert gate.before("u3").state == "ok"
    assert "not quarantined" in Gate(gpu, records=gate.records).release()


def test_a_release_refuses_a_gpu_in_use(gate, gpu) -> None:
    gpurecords.put(UUID, "hung", "u1", gate.records)
    gpu.leftover_until = 1e6
    with pytest.raises(GpuBusy):
        gate.release()
    assert gpurecords.find(UUID, gate.records)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"reason": "x"}', '{"reason":"x","who":"","unix_s":null,"boot_id":""}']
)
def test_a_record_that_cannot_be_read_still_counts(gate, text) -> None:
    gpurecords.put(UUID, "hung", "u1", gate.records)
    (gate.records / f"{UUID}.json").write_text(text)
    found = gate.before("u2")
    assert (found.state, "cannot be read" in found.reason) == ("quarantined", True)


def test_a_uuid_never_becomes_another_path(tmp_path) -> None:
    with pytest.raises(SandboxFault, match="no GPU UUID"):
        gpurecords.put("../../etc/x", "r", "w", tmp_path)
