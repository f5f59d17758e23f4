# ruff: noqa: T201
"""System calls that open large parts of the kernel, other processes, or the machine itself. x86_64 numbers."""

import ctypes
import errno
import json

libc = ctypes.CDLL(None, use_errno=True)
CALLS: dict[str, tuple[int, ...]] = {
    "bpf": (321, 0),
    "io_uring_setup": (425, 0, 0),
    "userfaultfd": (323, 0),
    "keyctl": (250, 0),
    "add_key": (248,),
    "request_key": (249,),
    "perf_event_open": (298,),
    "kexec_load": (246,),
    "init_module": (175,),
    "finit_module": (313,),
    "delete_module": (176,),
    "ptrace": (101, 0),
    "process_vm_readv": (310,),
    "process_vm_writev": (311,),
    "pidfd_getfd": (438,),
    "kcmp": (312,),
    "name_to_handle_at": (303,),
    "open_by_handle_at": (304,),
    "fanotify_init": (300,),
    "splice": (275,),
    "vmsplice": (278,),
    "swapon": (167,),
    "acct": (163,),
    "quotactl": (179,),
    "syslog": (103,),
    "iopl": (172, 3),
    "modify_ldt": (154, 0, 0, 0),
    "sethostname": (170, 0, 0),
    "personality": (135, 0x0040000),
}
answers = {}
for name, call in CALLS.items():
    ctypes.set_errno(0)
    done = libc.syscall(*(ctypes.c_ulong(part) for part in call))
    answers[name] = errno.errorcode[ctypes.get_errno()] if done == -1 else "done"
print(json.dumps(answers))
