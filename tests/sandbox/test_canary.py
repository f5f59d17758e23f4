"""No job runs before its limits are proved: each of them, switched off, is refused by name."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from sandbox import canary, policy
from sandbox.api import Job, Mount, SandboxFault
from sandbox.canary import Kernel, compare
from sandbox.cgroups import Group

pytestmark = pytest.mark.sandbox

RAN = "the job ran"
Doctor = Callable[[str], str]


@pytest.fixture(scope="session")
def real() -> dict[str, tuple[Job, dict[str, Any], Kernel]]:
    """One true report of each engine, taken once by `taken`."""
    return {}


@pytest.fixture
def true(sandbox, job, engine, real, monkeypatch) -> tuple[Job, dict[str, Any], Kernel]:
    """A job, what its canary really said, and what the kernel really said."""
    if engine not in real:

        def spy(one: Job, report: Mapping[str, Any], kernel: Kernel) -> list[str]:
            real[engine] = (one, dict(report), kernel)
            return compare(one, report, kernel)

        monkeypatch.setattr(canary, "compare", spy)
        assert sandbox.run(job(f"print({RAN!r})", cpus=(0,))).stdout.head == f"{RAN}\n".encode()
    return copy.deepcopy(real[engine])


def test_a_true_report_has_no_difference(true):
    assert compare(*true) == []


def test_a_kernels_own_idle_tunnels_are_no_network(true):
    """Where their modules are loaded, every new namespace has them."""
    job, report, kernel = true
    assert compare(job, {**report, "network": report["network"] + "  sit0: 0 0\n tunl0: 0 0\n"}, kernel) == []


@pytest.mark.parametrize("sbin", ["/sbin", "/usr/sbin"])
def test_dockers_own_init_is_asked_for_where_sbin_is_a_folder_and_where_it_is_a_link(true, sbin):
    job, report, kernel = true
    line = f"999 1 8:1 /docker-init {sbin}/docker-init ro,nosuid,nodev - ext4 /dev/sda ro\n"
    assert compare(job, {**report, "mounts": report["mounts"] + line}, kernel) == []


def line_of(name: str, value: str) -> Callable[[dict[str, Any]], None]:
    def change(report: dict[str, Any]) -> None:
        before = report["status"]
        lines = [f"{name}:\t{value}" if line.startswith(f"{name}:") else line for line in before.splitlines()]
        report["status"] = "\n".join(lines)
        assert report["status"] != before.rstrip("\n")

    return change


def mount(point: str, old: str, new: str) -> Callable[[dict[str, Any]], None]:
    """Change the text of one mount's line."""

    def change(report: dict[str, Any]) -> None:
        lines = report["mounts"].splitlines()
        at = max(n for n, line in enumerate(lines) if line.split()[4] == point)
        assert old in lines[at], lines[at]
        report["mounts"] = "\n".join([*lines[:at], lines[at].replace(old, new), *lines[at + 1 :]])

    return change


def rlimit(name: str) -> Callable[[dict[str, Any]], None]:
    def change(report: dict[str, Any]) -> None:
        old = next(line for line in report["limits"].splitlines() if line.startswith(name))
        report["limits"] = report["limits"].replace(old, f"{name}   unlimited   unlimited   units")

    return change


def namespace(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda report: report["namespaces"].update({name: os.readlink(f"/proc/self/ns/{name}")})


def more_mounts(report: dict[str, Any]) -> None:
    report["mounts"] += "999 1 8:1 / /host ro,nosuid,nodev - ext4 /dev/sda ro\n"


REPORTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "root": (line_of("Uid", "0\t0\t0\t0"), "uid:"),
    "saved uid": (line_of("Uid", "65534\t65534\t0\t65534"), "uid:"),
    "root's group": (line_of("Gid", "0\t0\t0\t0"), "gid:"),
    "groups": (line_of("Groups", "0 65534"), "groups:"),
    **{name: (line_of(name, "0000000000000400"), f"capabilities: {name}") for name in canary.CAPABILITIES},
    "no-new-privs": (line_of("NoNewPrivs", "0"), "no-new-privs:"),
    "seccomp": (line_of("Seccomp", "0"), "seccomp:"),
    **{f"rlimit {short}": (rlimit(long), f"rlimit {short}:") for short, long in canary.RLIMITS.items()},
    "root rw": (mount("/", " ro,", " rw,"), "mount /: writable"),
    "code rw": (mount("/canary.py", " ro,", " rw,"), "mount /canary.py: writable"),
    "image rw": (mount("/usr", " ro,", " rw,"), "mount /usr: writable"),
    "tmp suid": (mount("/tmp", "nosuid,", ""), "mount /tmp: not nosuid"),
    "tmp devices": (mount("/tmp", "nodev,", ""), "mount /tmp: not nodev"),
    "tmp noexec": (mount("/tmp", "nosuid,", "nosuid,noexec,"), "mount /tmp: noexec"),
    "tmp size": (mount("/tmp", "size=", "mpol="), "mount /tmp: size"),
    "tmp inodes": (mount("/tmp", "nr_inodes=", "mpol="), "mount /tmp: inodes"),
    "tmp on disk": (mount("/tmp", "- tmpfs", "- ext4"), "mount /tmp: ext4"),
    "shm size": (mount("/dev/shm", "size=", "mpol="), "mount /dev/shm: size"),
    "no shm": (mount("/dev/shm", " /dev/shm ", " /dev/other "), "mount /dev/shm: missing"),
    "host mount": (more_mounts, "mount /host: not asked for"),
    "network": (lambda report: report.update(network=report["network"] + "  eth0: 0 0\n"), "network: interfaces"),
    **{f"{name} namespace": (namespace(name), f"namespace {name}:") for name in canary.NAMESPACES},
    "device": (lambda report: report["devices"].append("kvm"), "devices: kvm"),
    "environment": (lambda report: report["environment"].append("AWS_SECRET"), "environment: AWS_SECRET"),
    "hostname": (lambda report: report.update(hostname="build-7"), "hostname:"),
    "open file": (lambda report: report["files"].append(7), "open files:"),
}


@pytest.mark.parametrize("limit", REPORTS)
def test_a_limit_that_the_report_shows_missing_is_named(limit, true):
    job, report, kernel = true
    change, message = REPORTS[limit]
    change(report)
    found = compare(job, report, kernel)
    assert [text[: len(message)] for text in found] == [message], found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pids": "max"}, "pids cap"),
        ({"memory": "9223372036854771712"}, "memory cap"),
        ({"memory": ""}, "memory cap"),
        ({"swap": "9223372036854771712"}, "swap cap"),
        ({"swap": "max", "unified": True}, "swap cap"),
        ({"cpus": "0-1"}, "cpu set"),
        ({"devices": ("/dev/nvidia0",)}, "devices: without nvidia0"),
    ],
)
def test_a_cap_that_the_kernel_does_not_hold_is_named(change, message, true):
    job, report, kernel = true
    found = compare(job, report, replace(kernel, **change))
    assert [text[: len(message)] for text in found] == [message], found


def test_what_the_host_has_mounted_below_a_folder_of_the_image_may_come_along_but_only_read_only(true):
    job, report, kernel = true
    library = "999 1 8:1 / /usr/lib/libcuda.so.1 {},nosuid,nodev - ext4 /dev/sda ro\n"
    below = frozenset(
        canary._below(job, "1 1 0:1 / / rw - ext4 a rw\n2 1 0:1 / /usr/lib/libcuda.so.1 rw - ext4 a rw\n")
    )
    assert below == {"/usr/lib/libcuda.so.1"}
    for flag, found in (("ro", []), ("rw", ["mount /usr/lib/libcuda.so.1: writable"])):
        said = {**report, "mounts": report["mounts"] + library.format(flag)}
        assert compare(job, said, replace(kernel, below=below)) == found
    said = {**report, "mounts": report["mounts"] + library.format("ro")}
    assert compare(job, said, kernel) == ["mount /usr/lib/libcuda.so.1: not asked for"]


# --- real containers with one argument taken away ---------------------------------------------------------------------


def without(argv: list[str], *words: str) -> list[str]:
    at = next(n for n in range(len(argv)) if argv[n : n + len(words)] == list(words))
    return argv[:at] + argv[at + len(words) :]


BWRAP: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "network": (lambda a: without(a, "--unshare-net"), "namespace net"),
    "pid": (lambda a: without(a, "--unshare-pid"), "namespace pid"),
    "ipc": (lambda a: without(a, "--unshare-ipc"), "namespace ipc"),
    "seccomp": (lambda a: without(a, "--seccomp", a[a.index("--seccomp") + 1]), "seccomp: mode 0"),
    "root": (lambda a: without(a, "--remount-ro", "/"), "mount /: writable"),
    "environment": (
        lambda a: [*a[: (n := a.index("--chdir"))], "--setenv", "SECRET", "x", *a[n:]],
        "environment: SECRET",
    ),
    "tmp": (lambda a: [w.replace(f"size={256 << 20},", "") for w in a], "mount /tmp: size"),
    "inodes": (lambda a: [w.replace("nr_inodes=16384,", "") for w in a], "mount /tmp: inodes"),
    "bounding": (lambda a: without(a, "--bounding-set=-all"), "capabilities: CapBnd"),
    "rlimit": (lambda a: [w for w in a if not w.startswith("--core=")], "rlimit core"),
}


@pytest.mark.parametrize("engine", ["bwrap"], indirect=True)
@pytest.mark.parametrize("limit", BWRAP)
def test_bubblewrap_without_one_argument_runs_nothing(limit, sandbox, job, monkeypatch, nothing_left):
    doctor, message = BWRAP[limit]
    whole = policy.bwrap_argv
    monkeypatch.setattr(policy, "bwrap_argv", lambda *a, **k: doctor(whole(*a, **k)))
    with pytest.raises(SandboxFault, match=message):
        sandbox.run(job(f"print({RAN!r})"))


DOCKER: dict[str, tuple[dict[str, Any], str]] = {
    "capability": ({"cap_drop": []}, "capabilities: CapBnd"),
    "network": ({"network_mode": "host"}, "namespace net|hostname"),
    "root": ({"read_only": False}, "mount /: writable"),
    "pids": ({"pids_limit": -1}, "pids cap"),
    "memory": ({"mem_limit": 0, "memswap_limit": 0}, "memory cap"),
    "seccomp": ({"security_opt": ["no-new-privileges:true", "seccomp=unconfined"]}, "seccomp: mode 0"),
    "privileges": ({"security_opt": []}, "no-new-privs"),
    "tmp": ({"tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777"}}, "mount /tmp: size"),
    "inodes": ({"tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,size={256 << 20},mode=1777"}}, "mount /tmp: inodes"),
    "shm": ({"shm_size": 1 << 30}, "mount /dev/shm: size"),
    "device": ({"devices": ["/dev/fuse:/dev/fuse:rw"]}, "devices: fuse"),
    "rlimits": ({"ulimits": []}, "rlimit"),
    "swap": ({"memswap_limit": 1 << 30}, "swap cap: 1073741824"),
    "cpus": ({"cpuset_cpus": None}, "cpu set: .*, not"),
    "ipc": ({"ipc_mode": "host"}, "namespace ipc"),
}


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
@pytest.mark.parametrize("limit", [*DOCKER, "user"])
def test_docker_without_one_argument_runs_nothing(limit, sandbox, job, monkeypatch, nothing_left):
    whole = policy.docker_config

    def doctored(*args: Any) -> dict[str, Any]:
        config = whole(*args)
        if limit == "user":
            config["create"]["user"] = "0:0"
        else:
            config["host"] |= DOCKER[limit][0]
        return config

    monkeypatch.setattr(policy, "docker_config", doctored)
    with pytest.raises(SandboxFault, match="uid:" if limit == "user" else DOCKER[limit][1]):
        sandbox.run(job(f"print({RAN!r})", cpus=(0,)))


def writable_docker(whole: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    def doctored(*args: Any) -> dict[str, Any]:
        config = whole(*args)
        config["host"]["mounts"] = [{**mount, "ReadOnly": False} for mount in config["host"]["mounts"]]
        return config

    return doctored


def test_a_folder_that_should_be_read_only_and_is_not_runs_nothing(sandbox, job, monkeypatch, tmp_path, nothing_left):
    whole = policy.bwrap_argv
    monkeypatch.setattr(policy, "docker_config", writable_docker(policy.docker_config))
    monkeypatch.setattr(
        policy, "bwrap_argv", lambda *a, **k: ["--bind" if w == "--ro-bind" else w for w in whole(*a, **k)]
    )
    tmp_path.chmod(0o755)
    with pytest.raises(SandboxFault, match=r"(?=.*mount /canary.py: writable)(?=.*mount /bundle: writable)"):
        sandbox.run(job(f"print({RAN!r})", mounts=(Mount(tmp_path, "/bundle"),)))


@pytest.mark.parametrize("engine", ["bwrap"], indirect=True)
@pytest.mark.parametrize("cap", ["memory", "swap", "pids", "cpu set"])
def test_bubblewrap_whose_cgroup_lacks_a_cap_runs_nothing(cap, sandbox, job, monkeypatch, nothing_left):
    whole = Group._cap
    wide = {"memory": {"memory_bytes": 2 << 30}, "pids": {"pids": 4096}, "cpu set": {"cpus": ()}}

    def doctored(group: Group, limits: Any) -> None:
        if cap == "swap":
            path = group.dirs.get("memory", group.dirs.get("unified"))
            v1 = path / "memory.memsw.limit_in_bytes"
            whole(group, limits)
            (v1 if v1.exists() else path / "memory.swap.max").write_text(str(2 << 30))
        else:
            whole(group, replace(limits, **wide[cap]))

    monkeypatch.setattr(Group, "_cap", doctored)
    with pytest.raises(SandboxFault, match=f"limits not in force: {cap}"):
        sandbox.run(job(f"print({RAN!r})", cpus=(0,)))


# --- a report that is none --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(0)", "limits were known|could not start"),
        ("import os, signal; print('nonsense', flush=True); os.kill(os.getpid(), signal.SIGSTOP)", "cannot be read"),
        ("import os, signal; print('[]', flush=True); os.kill(os.getpid(), signal.SIGSTOP)", "cannot be read"),
        ("import os, signal; print('{}\\n{}', flush=True); os.kill(os.getpid(), signal.SIGSTOP)", "more than one"),
        ("import time; time.sleep(60)", "no report of its limits"),
        ("print('x' * (1 << 20), end='')", "limits were known|no report of its limits"),
    ],
)
def test_without_a_report_nothing_runs(program, message, sandbox, job, monkeypatch, tmp_path, nothing_left):
    tmp_path.chmod(0o755)
    fake = tmp_path / "canary.py"
    fake.write_text(program)
    monkeypatch.setattr(canary, "REPORT_S", 3.0)
    here = policy.Host
    monkeypatch.setattr("sandbox.host.Host", lambda **facts: here(**{**facts, "canary": str(fake)}))
    with pytest.raises(SandboxFault, match=message):
        sandbox.run(job(f"print({RAN!r})"))


def test_nothing_of_the_canary_reaches_the_job(run):
    code = (
        "import json, os, signal; print(json.dumps([dict(os.environ), [n for n in range(3, 64) "
        "if os.path.exists(f'/proc/self/fd/{n}')], open('/proc/self/status').read()]))"
    )
    outcome = run(code, output_bytes=8192)
    environment, files, status = json.loads(outcome.stdout.head)
    assert files == []
    assert "LC_CTYPE" not in environment
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
    assert blocked == 0


def test_the_job_gets_its_signals_and_its_environment_as_they_were():
    """Seen by a shell, which changes no signal; with a locale that makes Python add a name of its own."""
    see = "grep SigIgn /proc/$$/status; tr '\\0' '\\n' < /proc/$$/environ"
    command = [sys.executable, "-I", "-S", "-E", str(canary.PROGRAM), "/bin/sh", "-c", see]
    with subprocess.Popen(command, env={"A": "1"}, stdout=subprocess.PIPE, text=True) as process:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        process.send_signal(signal.SIGCONT)
        report, ignored, *environment = process.communicate(timeout=10)[0].splitlines()
    assert json.loads(report)["environment"] == ["A"]
    with open("/proc/self/status") as file:
        here = next(line for line in file if line.startswith("SigIgn"))
    pythons = sum(1 << (number - 1) for number in (signal.SIGPIPE, signal.SIGXFSZ))
    assert (
        int(ignored.split()[1], 16) == int(here.split()[1], 16) & ~pythons
    )  # what whoever started us ignored, and no more
    assert environment == ["A=1"]


def test_describe_names_the_program(sandbox):
    assert sandbox.describe()["canary"] == canary.digest()


def test_a_vanished_process_has_no_caps():
    assert Group.of_pid(1 << 30).dirs == {}


@pytest.mark.parametrize("unified", [True, False])
@pytest.mark.parametrize("engine", ["bwrap"], indirect=True)
def test_the_caps_are_read_from_the_groups_of_the_process_on_either_version(unified, job, monkeypatch, tmp_path):
    one = job("pass", cpus=(0, 1), memory_bytes=64 << 20, pids=9)
    v2 = {"pids.max": "9", "memory.max": str(64 << 20), "memory.swap.max": "0", "cpuset.cpus": "0-1"}
    v1 = {
        "pids.max": "9",
        "memory.limit_in_bytes": str(64 << 20),
        "memory.memsw.limit_in_bytes": str(64 << 20),
        "cpuset.cpus": "0-1",
    }
    files = v2 if unified else v1
    for name, text in files.items():
        (tmp_path / name).write_text(text + "\n")
    group = Group(dict.fromkeys(["unified"] if unified else ["pids", "memory", "cpuset"], tmp_path))
    monkeypatch.setattr(Group, "of_pid", lambda pid: group)
    assert list(canary._caps(one, canary.kernel_of(1, one, policy.Host()))) == []
    for name, cap in zip(files, ("pids cap", "memory cap", "swap cap", "cpu set"), strict=True):
        whole = (tmp_path / name).read_text()
        (tmp_path / name).write_text("max\n" if name != "cpuset.cpus" else "0-7\n")
        found = list(canary._caps(one, canary.kernel_of(1, one, policy.Host())))
        assert [line.startswith(cap) for line in found] == [True], (name, found)
        (tmp_path / name).write_text(whole)
