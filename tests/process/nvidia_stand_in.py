"""Answers the queries of nvidia-smi from a JSON file: `nvidia_stand_in.py STATE QUERY FORMAT`.

The file has `cards` (index, uuid, name, memory.total, memory.free, utilization.gpu; sizes in MiB) and `apps`
(pid, gpu_uuid, used_memory); `error` makes the tool fail with that text, `pause` makes it slow.
"""

import json
import sys
import threading
from pathlib import Path


def main(state: str, query: str, *_: str) -> None:
    found = json.loads(Path(state).read_text())
    threading.Event().wait(found.get("pause", 0))
    if "error" in found:
        sys.exit(found["error"])
    rows = found["cards"] if query.startswith("--query-gpu=") else found.get("apps", [])
    names = query.partition("=")[2].split(",")
    for row in rows:
        sys.stdout.write(", ".join(str(row[name]) for name in names) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
