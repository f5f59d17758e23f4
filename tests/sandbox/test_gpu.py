"""GPU facts as the driver shows them under /proc (written down from an H200 host)."""

from __future__ import annotations

import pytest

from sandbox import gpu
from sandbox.api import SandboxFault

INFORMATION = """Model: \t\t NVIDIA H200
IRQ:   \t\t 120
GPU UUID: \t GPU-0a1b2c3d-0000-1111-2222-333344445555
Video BIOS: \t 96.00.bc.00.02
Bus Type: \t PCIe
Device Minor: \t 3
"""
VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs@U22)  Tue\nGCC version:\n"
)


@pytest.fixture
def driver(tmp_path):
    (tmp_path / "gpus" / "0000:19:00.0").mkdir(parents=True)
    (tmp_path / "gpus" / "0000:19:00.0" / "information").write_text(INFORMATION)
    (tmp_path / "version").write_text(VERSION)
    return tmp_path


def test_a_uuid_names_three_device_nodes(driver):
    uuid = "GPU-0a1b2c3d-0000-1111-2222-333344445555"
    assert gpu.minors(driver) == {uuid: 3}
    assert gpu.nodes(uuid, driver) == ("/dev/nvidia3", "/dev/nvidiactl", "/dev/nvidia-uvm")
    assert gpu.driver_version(driver) == "580.95.05"


def test_an_unknown_gpu_is_our_fault_and_names_the_known_ones(driver):
    with pytest.raises(SandboxFault, match=r"no GPU GPU-x on this host \(known: GPU-0a1b2c3d"):
        gpu.nodes("GPU-x", driver)


def test_without_a_driver_there_is_no_gpu(tmp_path):
    assert (gpu.minors(tmp_path), gpu.driver_version(tmp_path)) == ({}, None)
