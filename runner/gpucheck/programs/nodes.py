"""Which NVIDIA device nodes are here, and whether more can be made. Prints one JSON line."""

import errno
import json
import os
import stat
import sys

found = {}
for folder, _, names in os.walk("/dev"):
    for name in names:
        path = os.path.join(folder, name)
        if "nvidia" in path or "dri" in path.split("/"):
            info = os.lstat(path)
            if stat.S_ISCHR(info.st_mode):
                found[path] = [os.major(info.st_rdev), os.minor(info.st_rdev)]
made = {}
for minor in range(8):
    try:
        os.mknod(f"/tmp/gpu{minor}", 0o666 | stat.S_IFCHR, os.makedev(195, minor))
        made[str(minor)] = "made"
    except OSError as error:
        made[str(minor)] = errno.errorcode[error.errno or 0]
sys.stdout.write(json.dumps({"nodes": found, "mknod": made}) + "\n")
