"""Asks NVML's setters for the value that is set already: were one allowed, nothing would change. Prints one JSON line of codes."""

import ctypes
import json
import sys

nvml = ctypes.CDLL("libnvidia-ml.so.1")
device = ctypes.c_void_p()
value = ctypes.c_uint()
codes = {"init": nvml.nvmlInit_v2(), "handle": nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))}
for name in ("PersistenceMode", "ComputeMode", "PowerManagementLimit", "AccountingMode"):
    codes[f"get {name}"] = getattr(nvml, f"nvmlDeviceGet{name}")(device, ctypes.byref(value))
    if codes[f"get {name}"] == 0:
        codes[f"set {name}"] = getattr(nvml, f"nvmlDeviceSet{name}")(device, value)
sys.stdout.write(json.dumps(codes) + "\n")
