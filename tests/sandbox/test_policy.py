"""The container arguments: pinned by golden files, and no job can widen them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from images.api import Bind, Image
from sandbox import policy
from sandbox.api import Job, Limits, Mount
from sandbox.policy import Host, JobRefused, bwrap_argv, docker_config

GOLDEN = Path(__file__).parent / "golden"
GPU = "GPU-01234567-89ab-cdef-0123-456789abcdef"
NODES = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
HOST = Host(
    owner="boot:123:456",
    now=1_800_000_000.0,
    open_files_max=20_000,
    memlock_max=8 << 20,
    links=(("/bin", "usr/bin"), ("/lib", "usr/lib"), ("/lib64", "usr/lib64"), ("/sbin", "usr/sbin")),
    gpus={GPU: NODES},
    canary="/srv/assay/canary.py",
)
IMAGE = Image(
    name="host",
    digest="sha256:" + "0" * 64,
    python="/home/user/env/bin/python",
    engine_ref="sha256:" + "1" * 64,
    binds=(
        Bind(Path("/usr"), "/usr"),
        Bind(Path("/home/user/env"), "/home/user/env"),
        Bind(Path("/etc/ld.so.cache"), "/etc/ld.so.cache"),
        Bind(Path("/srv/assay/images/etc/passwd"), "/etc/passwd"),
    ),
    env={"PATH": "/home/user/env/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"},
)
JOB = Job(
    name="assay-u1-candidate",
    role="guest",
    argv=("-I", "/shim/main.py"),
    image=IMAGE,
    env={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    mounts=(Mount(Path("/tmp/run/bundle"), "/bundle"), Mount(Path("/tmp/run/link"), "/link")),
    limits=Limits(cpus=(2, 3)),
    gpu=GPU,
)


def arguments(job: Job, host: Host = HOST) -> list[str]:
    return bwrap_argv(
        job, host, parent=99, groups=("/sys/fs/cgroup/memory/g", "/sys/fs/cgroup/pids/g"), seccomp_fd=7, status_fd=8
    )


def pretty(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def test_docker_arguments_are_the_golden_ones():
    assert pretty(docker_config(JOB, HOST)) == (GOLDEN / "docker.json").read_text()


def test_bwrap_arguments_are_the_golden_ones():
    assert pretty(arguments(JOB)) == (GOLDEN / "bwrap.json").read_text()


def test_an_image_below_tmp_is_mounted_after_tmp_so_that_it_is_seen():
    place = Path("/tmp/checkout/.guest")
    words = arguments(replace(JOB, image=replace(JOB.image, binds=(*JOB.image.binds, Bind(place, str(place))))))
    assert words.index("/run") < words.index(str(place))


def test_a_judge_may_write_to_its_own_folder_and_a_guest_to_none():
    out = (Mount(Path("/tmp/run/out"), "/out", writable=True),)
    judge = replace(JOB, role="judge", mounts=out)
    assert docker_config(judge, HOST)["host"]["mounts"][-1]["ReadOnly"] is False
    words = arguments(judge)
    assert words[words.index("/tmp/run/out") - 1 :][:3] == ["--bind", "/tmp/run/out", "/out"]
    for role in ("guest", "build"):
        with pytest.raises(JobRefused, match="writes nothing on the host"):
            policy.check(replace(JOB, role=role, mounts=out))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "Assay_1"}, "job name"),
        ({"name": "-x"}, "job name"),
        ({"uid": 0}, "never runs as root"),
        ({"uid": -1}, "never runs as root"),
        ({"argv": ("a\0b",)}, "NUL"),
        ({"env": {"LD_PRELOAD": "/x.so"}}, "LD_PRELOAD"),
        ({"env": {"PATH": "/x"}}, "PATH"),
        ({"env": {"PYTHONPATH": "/x"}}, "PYTHONPATH"),
        ({"env": {"TRITON_CACHE_MANAGER": "x:y"}}, "TRITON_CACHE_MANAGER"),
        ({"env": {"HTTP_PROXY": "x"}}, "HTTP_PROXY"),
        ({"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "NVIDIA_VISIBLE_DEVICES"),
        ({"gpu": "GPU-other"}, "no GPU GPU-other"),
        ({"image": replace(IMAGE, env={"LD_PRELOAD": "/x.so"})}, "LD_PRELOAD"),
        ({"image": replace(IMAGE, python="python3")}, "not an absolute path"),
        ({"image": replace(IMAGE, binds=(Bind(Path("/"), "/host"),))}, "never shown"),
        ({"image": replace(IMAGE, binds=(Bind(Path("/etc"), "/etc"),))}, "never shown"),
        ({"image": replace(IMAGE, binds=(Bind(Path("/root"), "/root"),))}, "never shown"),
        ({"limits": Limits(wall_s=float("inf"))}, "wall_s"),
        ({"limits": Limits(memory_bytes=0)}, "memory_bytes"),
        ({"limits": Limits(pids=-1)}, "pids"),
        ({"limits": Limits(cpus=(-1,))}, "cpus"),
    ],
)
def test_what_no_container_gets_is_refused_with_one_line(change, message):
    with pytest.raises(JobRefused, match=message) as refused:
        docker_config(replace(JOB, **change), HOST)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "source",
    [
        "/",
        "/usr",
        "/tmp",
        "/home",
        "/root",
        "/etc/ssl",
        "/proc/1/root",
        "/sys/fs/cgroup",
        "/dev/shm",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/user",
        "/var/lib/docker/overlay2",
        "/srv/x/docker.sock",
        "/srv/../etc/ssh",
        "srv/x",
        "/srv/a:b",
        "/srv/a,b",
        "//srv/a",
        "/srv/a/",
    ],
)
def test_sources_that_are_never_mounted(source):
    # pathlib would tidy some of these up: policy must refuse them as they are
    with pytest.raises(JobRefused):
        policy._check_source(source)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/tmp",
        "/tmp/x",
        "/proc/x",
        "/sys",
        "/dev/x",
        "/etc/passwd",
        "/usr/lib/x",
        "/bin",
        "/home",
        "/home/user/env/x",
        "relative",
        "/a/../b",
        "/a/",
        "/bundle/inner",
        "/a:b",
    ],
)
def test_targets_that_belong_to_the_container(target):
    mounts = (*JOB.mounts, Mount(Path("/tmp/run/other"), target))
    with pytest.raises(JobRefused):
        policy.check(replace(JOB, mounts=mounts))


@pytest.mark.parametrize(("parent", "ran"), [(os.getpid(), True), (1, False)])
def test_a_job_whose_runner_died_before_it_began_does_not_begin(tmp_path, parent, ran):
    mark = tmp_path / "ran"
    subprocess.run(["/bin/sh", "-c", policy.JOIN, "join", str(parent), "--", "touch", str(mark)], check=False)
    assert mark.exists() == ran


def test_docker_needs_an_image_id_and_bubblewrap_a_host_image():
    for ref in (None, "python:3.11", "sha256:short"):
        with pytest.raises(JobRefused, match="image ID"):
            docker_config(replace(JOB, image=replace(IMAGE, engine_ref=ref)), HOST)
    with pytest.raises(JobRefused, match="host images only"):
        arguments(replace(JOB, image=replace(IMAGE, binds=())))


def test_limits_are_cut_to_what_the_engine_may_set():
    job = replace(JOB, limits=Limits(open_files=50_000, memory_bytes=1 << 40))
    assert policy.resource_limits(job, HOST) == {"nofile": 20_000, "core": 0, "fsize": 512 << 20, "memlock": 8 << 20}
    unlimited = replace(HOST, open_files_max=-1, memlock_max=-1)
    assert policy.resource_limits(job, unlimited)["memlock"] == 1 << 40


# --- whatever the job says --------------------------------------------------------------------------------------------

words = st.text(max_size=12)
texts = words.filter(lambda text: "\0" not in text)
paths = st.one_of(
    st.sampled_from(
        ["/srv/data", "/tmp/a/b", "/", "/proc", "/var/run/docker.sock", "/run/x", "/etc", "/usr", "/dev/mem"]
    ),
    st.lists(st.sampled_from(["..", "tmp", "srv", "a", "dev", "docker.sock", "usr"]), min_size=1).map(
        lambda parts: "/" + "/".join(parts)
    ),
    words,
)
targets = st.one_of(st.sampled_from(["/data", "/links/a", "/bundle", "/tmp/x"]), paths)
names = st.one_of(
    st.sampled_from([*sorted(policy.ALLOWED_ENV), "PATH", "LD_PRELOAD", "LD_PRELOAD", "HTTP_PROXY"]), words
)
TWISTS = {
    "name": words,
    "role": st.sampled_from(["judge", "build"]),
    "argv": st.lists(st.one_of(texts, st.sampled_from(["--privileged", "--bind", "--cap-add", "ALL", "--"]))).map(
        tuple
    ),
    "image": st.one_of(
        st.builds(lambda s, t: replace(IMAGE, binds=(*IMAGE.binds, Bind(Path(s), t))), paths, targets),
        st.dictionaries(names, texts, max_size=2).map(lambda env: replace(IMAGE, env=env)),
    ),
    "env": st.dictionaries(names, texts, max_size=2),
    "mounts": st.lists(st.builds(Mount, paths.map(Path), targets, st.booleans()), min_size=1, max_size=2).map(tuple),
    "limits": st.builds(Limits, pids=st.integers(-1, 1000), cpus=st.lists(st.integers(-1, 3)).map(tuple)),
    "uid": st.integers(-2, 3),
    "gpu": st.sampled_from([None, "GPU-other", "all"]),
}
jobs = st.lists(st.sampled_from(sorted(TWISTS)), unique=True, max_size=2).flatmap(
    lambda fields: st.builds(lambda **twist: replace(JOB, **twist), **{field: TWISTS[field] for field in fields})
)
"""A good job with up to two of its fields said anew, well or badly."""
FIXED = {
    **{"auto_remove": False, "cap_drop": ["ALL"], "cgroupns": "private", "init": True, "ipc_mode": "private"},
    **{"network_mode": "none", "privileged": False, "read_only": True, "oom_score_adj": 1000},
}
VARYING = {"cpuset_cpus", "devices", "log_config", "mem_limit", "memswap_limit", "mounts", "pids_limit", "security_opt"}
VARYING |= {"shm_size", "tmpfs", "ulimits"}


def forbidden(source: str) -> bool:
    """Said once more, by other means than the policy's."""
    return bool(re.match(r"/(proc|sys|dev|run|boot|var/run|etc)(/|$)", source)) or ".sock" in source or ".." in source


@settings(max_examples=400, deadline=None)
@given(jobs)
def test_no_job_can_add_a_privilege_under_docker(job):
    try:
        config = docker_config(job, HOST)
    except JobRefused:
        return
    host, create = config["host"], config["create"]
    assert {name: host[name] for name in FIXED} == FIXED
    assert set(host) == set(FIXED) | VARYING
    assert host["security_opt"][0] == "no-new-privileges:true"
    assert json.loads(host["security_opt"][1].removeprefix("seccomp="))["defaultAction"] == "SCMP_ACT_ERRNO"
    assert len(host["security_opt"]) == 2
    assert host["devices"] == ([f"{node}:{node}:rw" for node in NODES] if job.gpu else [])
    assert host["memswap_limit"] == host["mem_limit"] > 0
    assert host["pids_limit"] > 0
    assert {s["Name"]: s["Hard"] for s in host["ulimits"]}["core"] == 0
    assert (create["tty"], create["stdin_open"], create["use_config_proxy"]) == (False, False, False)
    assert int(create["user"].split(":")[0]) > 0
    assert set(create["environment"]) <= policy.ALLOWED_ENV | policy.IMAGE_ENV
    for mount in host["mounts"]:
        source = mount["Source"]
        assert source == "/etc/ld.so.cache" or not forbidden(source)
        assert source.count("/") >= 2 or source in policy.SYSTEM_FOLDERS
        assert mount["ReadOnly"] or job.role == "judge"


@settings(max_examples=400, deadline=None)
@given(jobs)
def test_no_job_can_add_a_privilege_under_bubblewrap(job):
    try:
        argv = arguments(job)
    except JobRefused:
        return
    ours, theirs = argv[: argv.index(job.image.python)], argv[argv.index(job.image.python) + 1 :]
    assert theirs == [
        *policy.CANARY_FLAGS,
        job.image.python,
        *job.argv,
    ]  # after the last "--": never an option of bwrap
    at = ours.index(HOST.bwrap)
    assert ours[at + 1 : at + 6] == [f"--unshare-{n}" for n in ("ipc", "pid", "net", "uts", "cgroup")]
    assert [ours[i + 1] for i, word in enumerate(ours) if word == "--cap-add"] == [
        "CAP_SETUID",
        "CAP_SETGID",
        "CAP_SETPCAP",
    ]
    for once in (
        "--die-with-parent",
        "--new-session",
        "--clearenv",
        "--seccomp",
        "--no-new-privs",
        "--bounding-set=-all",
    ):
        assert once in ours
    assert "--as-pid-1" not in ours
    assert [ours[i + 1] for i, word in enumerate(ours) if word == "--remount-ro"] == ["/dev", "/"]
    assert int(ours[ours.index("--reuid") + 1]) > 0
    assert [ours[i + 1] for i, word in enumerate(ours) if word == "--dev-bind"] == list(NODES if job.gpu else ())
    bound = [ours[i + 1 : i + 3] for i, word in enumerate(ours) if word == "--bind" and word in options(ours)]
    assert bound[0] == ["/run", "/tmp"]
    assert job.role == "judge" or len(bound) == 1


def options(argv: list[str]) -> list[str]:
    """Only words in option position: a value of --setenv may spell anything."""
    found, i = [], argv.index("--clearenv")
    arity = {
        "--setenv": 2,
        "--ro-bind": 2,
        "--bind": 2,
        "--dev-bind": 2,
        "--symlink": 2,
        "--perms": 1,
        "--size": 1,
        "--dir": 1,
    }
    while argv[i] != "--":
        found.append(argv[i])
        i += 1 + arity.get(argv[i], 1 if argv[i].startswith("--") and not argv[i + 1].startswith("--") else 0)
    return found
