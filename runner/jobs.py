"""Which containers a measurement consists of: the judge's, a guest's and a build's job, each with its whole set of permissions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from images.api import Image
from runner import devices
from sandbox.api import Job, Limits, Mount

ROOT = Path(__file__).resolve().parent.parent
JUDGE_UID = 65533
GUEST_UID = 65534
BUILD_S = 60.0
UNIT_S = 1800.0
"""No container of a unit outlives this, whatever happens to us."""
ENV = {
    "LANG": "C.UTF-8",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "TRITON_CACHE_DIR": "/tmp/triton",
    "XDG_CACHE_HOME": "/tmp/cache",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
INTERPRETER = {**ENV, "TRITON_INTERPRET": "1"}
SHIM = Mount(ROOT / "sandbox" / "guest", "/shim")


@dataclass(frozen=True)
class Jobs:
    """Makes jobs for one image on one device."""

    image: Image
    device: str
    """`cpu` (Triton's interpreter) or `cuda`."""
    gpu: str | None = None
    memory_bytes: int = 4 << 30
    wall_s: float = UNIT_S

    def judge(self, unit: str, folder: Path) -> Job:
        """Sees the frozen bundle and the arms' link folders; the only one that may write anywhere."""
        return Job(
            name=f"assay-{unit}-judge",
            role="judge",
            argv=("-I", "/judge/ops/judge/main.py", "/control/c", "/links", "/task", self.device),
            image=self.image,
            env=ENV,
            mounts=(
                Mount(ROOT / "ops", "/judge/ops"),
                Mount(folder / "task", "/task"),
                Mount(folder / "control", "/control"),
                Mount(folder / "links", "/links", writable=True),
            ),
            # file_bytes also caps a memfd, and the judge makes every tensor of a call
            limits=Limits(
                self.wall_s,
                memory_bytes=2 * self.memory_bytes,
                file_bytes=self.memory_bytes,
                cpus=devices.cpu_split()[0],
            ),
            uid=JUDGE_UID,
            gpu=self.gpu,
        )

    def guest(self, unit: str, arm: str, folder: Path) -> Job:
        """Sees its own link to the judge and its own projection of the bundle, read-only."""
        return Job(
            name=f"assay-{unit}-{arm}",
            role="guest",
            argv=("-I", "/shim/main.py", self.device),
            image=self.image,
            env=INTERPRETER if self.device == "cpu" else ENV,
            mounts=(Mount(folder / "links" / arm, "/link"), Mount(folder / "arms" / arm, "/bundle"), SHIM),
            limits=Limits(self.wall_s, memory_bytes=self.memory_bytes, cpus=devices.cpu_split()[1]),
            uid=GUEST_UID,
            gpu=self.gpu,
        )

    def build(self, unit: str, place: Path, entry: str) -> Job:
        """A guest without a GPU that only imports the source."""
        return Job(
            name=f"assay-{unit}-build",
            role="build",
            argv=("-I", "/shim/build.py", "/bundle/kernel.py", entry),
            image=self.image,
            env=INTERPRETER if self.device == "cpu" else ENV,
            mounts=(Mount(place, "/bundle"), SHIM),
            limits=Limits(BUILD_S, memory_bytes=self.memory_bytes, cpus=devices.cpu_split()[1]),
            uid=GUEST_UID,
        )
