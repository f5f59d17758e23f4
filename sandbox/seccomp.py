"""Which system calls a container may make: one allow-list, as Docker's JSON and as the program that bubblewrap loads.

Everything not listed is refused (EPERM). What is left out, and why:

    namespaces, mounts  unshare, setns, clone with namespace flags, the mount family, pivot_root, chroot. clone3 passes
                        its flags by pointer, where no filter sees them: ENOSYS, and the C library falls back to clone.
    other processes     ptrace, process_vm_*, pidfd_getfd, kcmp, process_madvise, move_pages
    the scheduler       sched_setaffinity, sched_setscheduler, sched_setparam, sched_setattr, ioprio_set: which CPU a job
                        has, and before whom, is decided outside. Libraries go on without (they pin threads as a favour).
    large kernel parts  io_uring (ENOSYS), asynchronous I/O, bpf, perf_event_open, userfaultfd, memfd_secret, keyrings,
                        inotify and fanotify (watching what a mounted folder's other users do), and the splice family
                        (page cache writes as in CVE-2026-31431 and CVE-2022-0847 went through it)
    sockets             every family but AF_UNIX, through which judge and guest talk: no network namespace contains
                        AF_VSOCK, AF_ALG writes to the page cache, and no job has a use for the rest. CUDA has none.
    the machine         modules, kexec, reboot, swap, clocks, host name, syslog, quota, acct, iopl, file handles

ioctl is not filtered: CUDA is ioctls, and no container has a terminal. setuid and capset stay: setpriv needs them
inside bubblewrap, and without capabilities they give nothing. ptrace is refused, so debuggers need another lane.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from sandbox.api import SandboxUnavailable

ALLOWED = """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 sendfile copy_file_range readahead
    open openat openat2 creat close close_range dup dup2 dup3 fcntl flock lseek ioctl pipe pipe2
    stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 getcwd chdir fchdir umask
    getdents getdents64 readlink readlinkat rename renameat renameat2 mkdir mkdirat rmdir link linkat unlink unlinkat
    symlink symlinkat mknod mknodat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat
    utime utimes utimensat futimesat truncate ftruncate fallocate fadvise64 fsync fdatasync sync_file_range
    setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
    removexattr lremovexattr fremovexattr

    mmap mprotect munmap mremap msync mincore madvise brk mlock mlock2 mlockall munlock munlockall
    mbind get_mempolicy set_mempolicy set_mempolicy_home_node memfd_create membarrier remap_file_pages
    pkey_alloc pkey_free pkey_mprotect map_shadow_stack cachestat
    shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
    mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr

    fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid getpgid setpgid getpgrp setsid getsid
    set_tid_address set_robust_list get_robust_list rseq futex futex_waitv futex_wake futex_wait futex_requeue
    arch_prctl prctl seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
    set_thread_area get_thread_area restart_syscall pidfd_open pidfd_send_signal
    getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid setresgid
    setgroups setfsuid setfsgid capget capset
    sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_getattr
    sched_get_priority_max sched_get_priority_min sched_rr_get_interval
    getpriority setpriority ioprio_get getcpu getrlimit setrlimit prlimit64 getrusage times sysinfo uname getrandom

    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo rt_tgsigqueueinfo
    rt_sigsuspend sigaltstack signalfd signalfd4 kill tkill tgkill pause alarm

    select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime getitimer setitimer
    timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time

    connect accept accept4 bind listen shutdown getsockname getpeername getsockopt setsockopt
    sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
""".split()  # noqa: SIM905  # a list to be read, not typed

NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET
AF_UNIX = 1
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32-bit uname flavours, and the query; none that switches off address randomisation or maps page zero."""


@dataclass(frozen=True)
class Rule:
    """Calls to allow (errno 0) or to refuse with an errno of their own; `mask` compares `argument & mask == value`."""

    names: tuple[str, ...]
    refuse: int = 0
    argument: int | None = None
    value: int = 0
    mask: int | None = None


def rules() -> Iterator[Rule]:
    """The whole policy; the default is EPERM."""
    yield Rule(tuple(ALLOWED))
    yield Rule(("clone",), argument=0, mask=NAMESPACE_FLAGS)
    yield Rule(("socket", "socketpair"), argument=0, value=AF_UNIX)
    for persona in PERSONALITIES:
        yield Rule(("personality",), argument=0, value=persona)
    # the C library falls back on ENOSYS only
    yield Rule(("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"), refuse=errno.ENOSYS)


@cache
def docker_json() -> str:
    """The profile as text: Docker's API takes the JSON itself, not a path. No architectures: the daemon's own only."""
    return json.dumps(
        {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [_docker_rule(rule) for rule in rules()]},
        sort_keys=True,
        separators=(",", ":"),
    )


def _docker_rule(rule: Rule) -> dict[str, object]:
    said: dict[str, object] = {"names": list(rule.names), "action": "SCMP_ACT_ALLOW"}
    if rule.refuse:
        said |= {"action": "SCMP_ACT_ERRNO", "errnoRet": rule.refuse}
    if rule.argument is not None:
        compare: dict[str, object] = {"index": rule.argument, "op": "SCMP_CMP_EQ", "value": rule.value}
        if rule.mask is not None:
            compare |= {"op": "SCMP_CMP_MASKED_EQ", "value": rule.mask, "valueTwo": rule.value}
        said["args"] = [compare]
    return said


@cache
def bpf_program() -> bytes:
    """The same policy, assembled by libseccomp. Raises SandboxUnavailable without the library."""
    try:
        import pyseccomp as lib  # loads libseccomp.so.2 at import
    except (ImportError, RuntimeError, OSError) as error:
        raise SandboxUnavailable(f"seccomp: {error}: install libseccomp2 and pyseccomp") from error
    program = lib.SyscallFilter(lib.ERRNO(errno.EPERM))
    for rule in rules():
        action = lib.ERRNO(rule.refuse) if rule.refuse else lib.ALLOW
        match: list[object] = []
        if rule.argument is not None and rule.mask is not None:
            match = [lib.Arg(rule.argument, lib.MASKED_EQ, rule.mask, rule.value)]
        elif rule.argument is not None:
            match = [lib.Arg(rule.argument, lib.EQ, rule.value)]
        for name in rule.names:
            number = lib.resolve_syscall(lib.Arch.NATIVE, name)
            if number >= 0:  # negative: not a call of this architecture, or newer than the library
                program.add_rule(action, number, *match)
    return _exported(program)


def _exported(program: object) -> bytes:
    fd = os.memfd_create("seccomp")
    with os.fdopen(fd, "w+b", buffering=0) as file:
        program.export_bpf(file)  # type: ignore[attr-defined]
        file.seek(0)
        return file.read()


def program_fd() -> int:
    """A fresh memfd holding the program, read position at its start; the caller closes it."""
    fd = os.memfd_create("seccomp", os.MFD_CLOEXEC)
    os.write(fd, bpf_program())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@cache
def digest() -> str:
    """Identity of the policy, whichever engine enforces it."""
    return "sha256:" + hashlib.sha256(docker_json().encode()).hexdigest()
