"""What a job can see and do, observed from inside, and who it is, observed from outside."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.api import Mount
from sandbox.cgroups import Group

pytestmark = [pytest.mark.sandbox, pytest.mark.usefixtures("nothing_left")]

CANARY = "canary-5f2e1c"


def ask(run, expression: str, setup: str = "", **kwargs):
    """The JSON value of an expression, evaluated inside."""
    outcome = run(f"import json, os\n{setup}\nprint(json.dumps({expression}))", **kwargs)
    assert (outcome.status, outcome.exit_code) == ("exited", 0), outcome.stderr.text()
    return json.loads(outcome.stdout.head)


TRY = """
def attempt(action):
    try: return repr(action())
    except OSError as error: return type(error).__name__ + " " + os.strerror(error.errno)
"""


def test_the_environment_is_the_allowed_one_and_shows_nothing_of_the_launcher(run, monkeypatch):
    monkeypatch.setenv("ASSAY_SECRET", CANARY)
    monkeypatch.setenv("HTTP_PROXY", f"http://{CANARY}@proxy")
    seen = ask(
        run,
        "[dict(os.environ), {p: look(p) for p in os.listdir('/proc') if p.isdigit()}]",
        "def look(p):\n"
        "    try: return open(f'/proc/{p}/environ').read() + open(f'/proc/{p}/cmdline').read()\n"
        "    except OSError as error: return type(error).__name__",
    )
    assert CANARY not in json.dumps(seen)
    assert set(seen[0]) - {"HOSTNAME", "PWD", "LC_CTYPE"} == {
        *("PATH", "LANG", "HOME", "TMPDIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"),
        *("CUDA_CACHE_PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"),
    }


def test_a_root_only_file_is_unreadable_even_when_its_folder_is_mounted(run, tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "secret").write_text(CANARY)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "public").write_text("hello")
    mounts = (Mount(tmp_path, "/data"),)
    seen = ask(run, "[attempt(lambda: open(f'/data/{n}').read()) for n in ('public', 'secret')]", TRY, mounts=mounts)
    assert seen == ["'hello'", "PermissionError Permission denied"]


def test_of_the_host_only_system_folders_and_the_environment_are_there(run, image):
    seen = ask(run, "[sorted(os.listdir('/')), sorted(os.listdir('/etc'))]")
    assert set(seen[0]) - {".dockerenv"} <= {
        *(
            "bin",
            "canary.py",
            "dev",
            "etc",
            "lib",
            "lib32",
            "lib64",
            "libx32",
            "proc",
            "root",
            "sbin",
            "sys",
            "tmp",
            "usr",
        ),
        *(bind.target.split("/")[1] for bind in image.binds),
    }
    # Docker itself writes hosts, hostname, mtab and resolv.conf there, with nothing of ours
    assert set(seen[1]) - {"hosts", "hostname", "mtab", "resolv.conf"} == {"group", "ld.so.cache", "passwd"}


def test_its_uid_is_unprivileged_inside_and_outside(sandbox, job):
    code = (
        "import os, time; print(os.getuid(), os.getgid(), set(os.getgroups()) <= {65534}, flush=True); time.sleep(30)"
    )
    with sandbox.start(job(code)) as running:
        uids = wait_for_uid(running._handle.group)
        outcome = running.kill()
    assert outcome.stdout.head == b"65534 65534 True\n"
    assert uids == ("65534",) * 4


def wait_for_uid(group: Group) -> tuple[str, ...]:
    """The real, effective, saved and filesystem uid of the job's Python process, by the host's /proc."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        time.sleep(0.3)
        for pid in group.pids():
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith("python"):
                status = Path(f"/proc/{pid}/status").read_text()
                return tuple(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:])
    raise AssertionError("the job's Python process was not found")


def test_another_uid_can_be_asked_for_but_never_root(sandbox, job):
    assert sandbox.run(replace(job("import os; print(os.getuid())"), uid=65533)).stdout.head == b"65533\n"


def test_no_capability_no_new_privilege_and_a_seccomp_filter(run):
    wanted = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
    status = ask(run, "dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines())")
    assert {name: status[name] for name in wanted} == {
        **dict.fromkeys(wanted[:5], "0" * 16),
        "NoNewPrivs": "1",
        "Seccomp": "2",
    }


def test_nothing_but_tmp_and_shm_can_be_written(run, image, tmp_path):
    (tmp_path / "kernel.py").write_text("frozen")
    places = ["/", "/usr", "/etc", "/dev", "/proc", image.python.rpartition("/")[0], "/bundle", "/tmp", "/dev/shm"]
    expression = f"[attempt(lambda: open(p + '/planted', 'w').write('x')) for p in {places}]"
    answers = ask(run, expression, TRY, mounts=(Mount(tmp_path, "/bundle"),))
    assert answers[-2:] == ["1", "1"]
    assert all(answer.split(" ")[0] in ("OSError", "PermissionError", "FileNotFoundError") for answer in answers[:-2])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kernel.py"]


def test_a_read_only_mount_resists_its_owner_and_a_writable_one_is_written(sandbox, job, tmp_path):
    for name in ("frozen", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
        (tmp_path / name / "f").write_text("before")
        (tmp_path / name / "f").chmod(0o666)
    mounts = (Mount(tmp_path / "frozen", "/frozen"), Mount(tmp_path / "out", "/out", writable=True))
    actions = (
        "[attempt(lambda: open(f'/{d}/f', 'w').write('after')) for d in ('frozen', 'out')]"
        " + [attempt(lambda: os.unlink('/frozen/f')), attempt(lambda: os.rename('/frozen', '/tmp/f'))]"
    )
    refused = "OSError Read-only file system"
    judge = lambda *args, **kwargs: sandbox.run(replace(job(*args, **kwargs), role="judge"))  # noqa: E731
    assert ask(judge, actions, TRY, mounts=mounts) == [refused, "5", refused, "OSError Invalid cross-device link"]
    assert [(tmp_path / n / "f").read_text() for n in ("frozen", "out")] == ["before", "after"]


def test_a_program_in_tmp_can_be_executed_and_mapped(run):
    setup = (
        "import ctypes, shutil, subprocess, sysconfig\n"
        "shutil.copy('/usr/bin/true', '/tmp/t')\n"
        "library = os.path.realpath(f'/lib/{os.uname().machine}-linux-gnu/libm.so.6')\n"
        "shutil.copy(library, '/tmp/m.so')\n"
    )
    assert ask(run, "[subprocess.run(['/tmp/t']).returncode, ctypes.CDLL('/tmp/m.so').abs(-3)]", setup) == [0, 3]


def test_there_is_no_network_but_the_loopback(run):
    setup = TRY + (
        "import socket\n"
        "def dial(address):\n"
        "    with socket.socket() as s: s.settimeout(2); s.connect(address)\n"
        "def resolve(name):\n"
        "    try: return socket.getaddrinfo(name, 80)\n"
        "    except socket.gaierror: return 'no name'\n"
    )
    outside = "[attempt(lambda: dial(a)) for a in (('192.0.2.1', 80), ('169.254.169.254', 80))]"
    interfaces = "[line.split(':')[0].strip() for line in open('/proc/net/dev') if ':' in line]"
    seen = ask(run, f"{outside} + [attempt(lambda: resolve('example.invalid')), {interfaces}]", setup)
    refused = "PermissionError Operation not permitted"  # already by the socket; behind it there is no interface
    assert seen == [refused, refused, "'no name'", ["lo"]]


REFUSED = """
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *[ctypes.c_ulong(a) for a in args])
    return errno.errorcode.get(ctypes.get_errno(), 'done') if result == -1 else 'done'
def sock(family, kind=socket.SOCK_STREAM):
    try: socket.socket(family, kind).close(); return 'done'
    except OSError as error: return errno.errorcode[error.errno]
calls = {
    'ptrace': (101, 0), 'keyctl': (250, 0), 'add_key': (248,), 'request_key': (249,), 'bpf': (321, 0), 'perf': (298,),
    'userfaultfd': (323, 0), 'unshare': (272, 0x10000000), 'setns': (308, 0, 0), 'mount': (165,), 'umount2': (166,),
    'pivot_root': (155,), 'chroot': (161,), 'open_tree': (428,), 'move_mount': (429,), 'fsopen': (430,),
    'process_vm_readv': (310,), 'process_vm_writev': (311,), 'pidfd_getfd': (438,), 'kexec_load': (246,),
    'init_module': (175,), 'reboot': (169,), 'swapon': (167,), 'clock_settime': (227,), 'settimeofday': (164,),
    'name_to_handle_at': (303,), 'open_by_handle_at': (304,), 'acct': (163,), 'quotactl': (179,), 'syslog': (103,),
    'splice': (275,), 'vmsplice': (278,), 'fanotify_init': (300,), 'clone NEWUSER': (56, 0x10000011),
    'personality': (135, 0x0040000), 'iopl': (172, 3), 'modify_ldt': (154, 0, 0, 0), 'sethostname': (170, 0, 0),
    'io_setup': (206, 1, 0), 'io_submit': (209, 0, 0, 0), 'inotify_init1': (294, 0), 'inotify_add_watch': (254, 0, 0, 0),
    'sched_setaffinity': (203, 0, 0, 0), 'sched_setscheduler': (144, 0, 0, 0), 'sched_setparam': (142, 0, 0),
    'sched_setattr': (314, 0, 0, 0), 'ioprio_set': (251, 1, 0, 0), 'memfd_secret': (447, 0),
}
"""


def test_dangerous_system_calls_are_refused_and_useful_ones_are_not(run):
    refused, fallback, sockets, allowed = ask(
        run,
        "[{n: call(*a) for n, a in calls.items()}, [call(435, 0, 0), call(425, 0, 0)],"
        " [sock(f) for f in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, 38, 40, 17)],"
        " [sock(socket.AF_UNIX), call(135, 0xffffffff), call(24)]]",
        REFUSED,
    )
    assert refused == dict.fromkeys(refused, "EPERM")
    assert len(refused) == 48
    assert fallback == ["ENOSYS", "ENOSYS"]
    assert sockets == ["EPERM"] * 6
    assert allowed == ["done"] * 3


def test_torch_computes_without_the_calls_that_pin_threads(run):
    code = "import torch; print(torch.set_num_threads(2), float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()))"
    outcome = run(code, memory_bytes=2 << 30, wall_s=60.0)
    assert (outcome.status, outcome.stdout.head, outcome.stderr.head) == ("exited", b"None 262144.0\n", b"")


def test_only_the_three_standard_descriptors_are_open(run):
    # listing the folder opens one more, which is gone when we look
    expression = "sorted(n for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}'))"
    assert ask(run, expression) == ["0", "1", "2"]


def test_it_sees_no_process_of_the_host_and_no_device_but_the_harmless(run):
    pids = "[int(p) for p in os.listdir('/proc') if p.isdigit()]"
    pids, devices, name = ask(run, f"[{pids}, os.listdir('/dev'), os.uname()[1]]")
    assert len(pids) <= 4
    assert max(pids) < 20
    assert name == "sandbox"
    assert set(devices) <= {
        *("core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout"),
        *("tty", "urandom", "zero", "console"),
    }


def test_killing_everything_it_can_reach_hurts_only_itself(run):
    outcome = run("import os\nfor pid in (1, -1): \n    try: os.kill(pid, 9)\n    except OSError as e: print(e)")
    assert outcome.status in ("signalled", "exited")
    assert run("print('still here')").stdout.head == b"still here\n"
