"""Writes the sample checkpoints and EXPECTED.json, the same bytes every time: ``python sample_ckpts/make.py [folder]``.

Everything is written by torch and safetensors themselves; damage is then done to the bytes. A sick file is named after
the rule that it shows; below ``trained`` lies what runs of the trainer leave behind. EXPECTED.json says for each file
which codes ``check`` must report, with which options.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

# What the trained samples compute must not depend on the processor more than it has to, so its special instructions
# stay unused: by torch itself, by oneDNN (convolutions) and by MKL (matrices). All read this when they start.
ON_ANY_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_CBWR": "COMPATIBLE",
    "OMP_NUM_THREADS": "1",
}


def main(folder: Path) -> None:
    """Write every sample below ``folder``; what else lies there stays."""
    os.environ.update(ON_ANY_PROCESSOR)
    try:
        import recipes  # these start torch
        import trained
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        sys.exit("The samples are made with torch, which is not installed: pip install -c constraints.txt -e '.[test]'")

    expected = {}
    for sample in recipes.SAMPLES:
        path = folder / sample.name
        path.parent.mkdir(parents=True, exist_ok=True)
        sample.write(path)
        path.chmod(0o644)  # safetensors writes files that only their owner may read
        expected[sample.name] = {"options": list(sample.options), "codes": list(sample.codes), "about": sample.about}
    expected |= trained.write_all(folder)
    text = json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    (folder / "EXPECTED.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else Path(__file__).resolve().parent)
