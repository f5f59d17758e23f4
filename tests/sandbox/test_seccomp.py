"""One list of rules, two forms: both say the same."""

from __future__ import annotations

import json
import struct

import pyseccomp
import pytest

from sandbox import seccomp

NEVER = """ptrace process_vm_readv process_vm_writev bpf perf_event_open userfaultfd keyctl add_key request_key mount umount2
    pivot_root chroot setns unshare open_tree move_mount fsopen fsmount mount_setattr init_module finit_module delete_module
    kexec_load kexec_file_load reboot swapon swapoff clock_settime settimeofday adjtimex clock_adjtime open_by_handle_at
    name_to_handle_at acct quotactl syslog iopl ioperm modify_ldt splice tee vmsplice fanotify_init pidfd_getfd kcmp
    process_madvise move_pages migrate_pages sethostname setdomainname memfd_secret clone3 io_uring_setup
    io_setup io_submit io_getevents io_pgetevents io_cancel io_destroy inotify_init inotify_init1 inotify_add_watch
    fanotify_mark sched_setaffinity sched_setscheduler sched_setparam sched_setattr ioprio_set""".split()  # noqa: SIM905
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x00000000
X86_64, I386 = 0xC000003E, 0x40000003


def run_bpf(number: int, args: tuple[int, ...] = (), arch: int = X86_64) -> int:
    """What the kernel would answer: the classic BPF subset that libseccomp emits, interpreted."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(*args, *(0,) * (6 - len(args))))
    code = [struct.unpack_from("<HBBI", seccomp.bpf_program(), at) for at in range(0, len(seccomp.bpf_program()), 8)]
    accumulator, at = 0, 0
    while True:
        operation, yes, no, k = code[at]
        at += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, k)[0]
        elif operation == 0x54:
            accumulator &= k
        elif operation == 0x06:
            return k
        elif operation == 0x05:
            at += k
        else:
            test = {0x15: accumulator == k, 0x25: accumulator > k, 0x35: accumulator >= k, 0x45: bool(accumulator & k)}
            at += yes if test[operation] else no


def number(name: str) -> int:
    return int(pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, name))


x86_64 = pytest.mark.skipif(pyseccomp.system_arch() != pyseccomp.Arch.X86_64, reason="call numbers of x86-64")


def allowed_by_docker() -> set[str]:
    profile = json.loads(seccomp.docker_json())
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    return {
        n
        for rule in profile["syscalls"]
        if rule["action"] == "SCMP_ACT_ALLOW" and "args" not in rule
        for n in rule["names"]
    }


def test_nothing_dangerous_is_on_the_list_and_nothing_is_on_it_twice():
    assert not set(NEVER) & allowed_by_docker()
    assert len(seccomp.ALLOWED) == len(set(seccomp.ALLOWED))


def test_every_name_is_a_system_call():
    newer = {"map_shadow_stack", "cachestat", "fchmodat2", "futex_wake", "futex_wait", "futex_requeue", "ioprio_get"}
    assert {name for name in seccomp.ALLOWED if number(name) < 0} <= newer


@x86_64
def test_the_program_answers_as_the_profile_says_for_every_call():
    listed = allowed_by_docker()
    by_argument = {"clone": ALLOW, "socket": EPERM, "socketpair": EPERM, "personality": ALLOW}
    answers = {name: run_bpf(number(name)) for name in {*listed, *NEVER, *by_argument} if number(name) >= 0}
    expected = {name: ALLOW if name in listed else EPERM for name in answers} | by_argument
    assert answers == expected | {"clone3": ENOSYS, "io_uring_setup": ENOSYS}


@x86_64
def test_arguments_decide_about_clone_socket_and_personality():
    clone, sock, pair, persona = map(number, ("clone", "socket", "socketpair", "personality"))
    namespaces = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
    assert {run_bpf(clone, (flag | 17,)) for flag in namespaces} == {EPERM}
    assert run_bpf(clone, (0x003D0F00,)) == ALLOW  # what pthread_create asks
    assert [family for family in range(64) if run_bpf(sock, (family,)) == ALLOW] == [1]
    assert [family for family in range(64) if run_bpf(pair, (family,)) == ALLOW] == [1]
    assert (
        run_bpf(sock, (16 | 1 << 32,)) == run_bpf(sock, (1 | 1 << 32,)) == EPERM
    )  # high bits, which the kernel ignores
    assert [run_bpf(persona, (p,)) for p in (0, 0xFFFFFFFF, 0x0040000, 0x0100000)] == [ALLOW, ALLOW, EPERM, EPERM]


@x86_64
def test_calls_of_another_architecture_or_number_are_refused():
    assert run_bpf(9999) == EPERM
    assert run_bpf(number("read"), arch=I386) == KILL
    assert run_bpf(number("read") | 0x40000000) in (KILL, EPERM)  # x32


def test_the_digest_is_that_of_the_docker_text():
    assert seccomp.digest() == "sha256:" + __import__("hashlib").sha256(seccomp.docker_json().encode()).hexdigest()
