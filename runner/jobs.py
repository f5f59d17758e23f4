"""Which containers a measurement consists of: judge, guest, build and its preparation, each with its whole set of permissions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from images.api import Image
from ops import wire
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

    def blank(self, role: Literal["judge", "guest"], name: str, link: Path, place: Path, idle_s: float) -> Job:
        """Sees the socket in `link`, and `place`: the frozen bundle, or a guest's projection of it. Writes nothing on the host."""
        limits = Limits(self.wall_s + idle_s, memory_bytes=self.memory_bytes, cpus=devices.cpu_split()[1])
        return self._judge(name, link, place, limits) if role == "judge" else self._guest(name, link, place, limits)

    def _judge(self, name: str, link: Path, place: Path, limits: Limits) -> Job:
        # file_bytes also caps a memfd, and the judge makes every tensor of a call
        room = {"memory_bytes": 2 * self.memory_bytes, "file_bytes": self.memory_bytes}
        return Job(
            name=f"assay-{name}",
            role="judge",
            argv=("-I", "/judge/ops/judge/main.py", self.device),
            image=self.image,
            env=ENV,
            mounts=(Mount(link, "/link"), Mount(place, "/task"), Mount(ROOT / "ops", "/judge/ops")),
            limits=replace(limits, cpus=devices.cpu_split()[0], **room),
            uid=JUDGE_UID,
            gpu=self.gpu,
        )

    def _guest(self, name: str, link: Path, place: Path, limits: Limits) -> Job:
        return Job(
            name=f"assay-{name}",
            role="guest",
            argv=("-I", "/shim/main.py", self.device),
            image=self.image,
            env=INTERPRETER if self.device == "cpu" else ENV,
            mounts=(Mount(link, "/link"), Mount(place, "/bundle"), SHIM),
            limits=limits,
            uid=GUEST_UID,
            gpu=self.gpu,
        )

    def build(self, unit: str, place: Path, entry: str, inputs: str = "") -> Job:
        """A guest without a GPU that imports the source; given a file of `inputs` in the bundle folder, it also compiles."""
        words = (f"/bundle/{inputs}",) if inputs else ()
        return Job(
            name=f"assay-{unit}-build",
            role="build",
            argv=("-I", "/shim/build.py", "/bundle/kernel.py", entry, *words),
            image=self.image,
            env=INTERPRETER if self.device == "cpu" else ENV,
            mounts=(Mount(place, "/bundle"), SHIM),
            limits=Limits(
                BUILD_S, memory_bytes=self.memory_bytes, cpus=devices.cpu_split()[1], kept_bytes=wire.MAX_BYTES
            ),
            uid=GUEST_UID,
        )

    def specs(self, unit: str, place: Path) -> Job:
        """Ours, with no guest beside it and no GPU: reads the frozen bundle and says what the entry's arguments look like."""
        return Job(
            name=f"assay-{unit}-specs",
            role="judge",
            argv=("-I", "/judge/ops/judge/specs.py", "/task"),
            image=self.image,
            env=ENV,
            mounts=(Mount(ROOT / "ops", "/judge/ops"), Mount(place, "/task")),
            limits=Limits(
                BUILD_S,
                memory_bytes=2 * self.memory_bytes,
                cpus=devices.cpu_split()[0],
                kept_bytes=wire.MAX_BYTES,
            ),
            uid=JUDGE_UID,
        )
