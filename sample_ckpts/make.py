"""Writes the sample checkpoints and EXPECTED.json, the same bytes every time: ``python sample_ckpts/make.py [folder]``.

Everything is written by torch and safetensors themselves; damage is then done to the bytes. A sick file is named after
the rule that it shows. EXPECTED.json says for each file which codes ``check`` must report, with which options.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import recipes


def main(folder: Path) -> None:
    """Write every sample below ``folder``."""
    expected = {}
    for sample in recipes.SAMPLES:
        path = folder / sample.name
        path.parent.mkdir(parents=True, exist_ok=True)
        sample.write(path)
        path.chmod(0o644)  # safetensors writes files that only their owner may read
        expected[sample.name] = {"options": list(sample.options), "codes": list(sample.codes), "about": sample.about}
    text = json.dumps(expected, indent=2, ensure_ascii=False) + "\n"
    (folder / "EXPECTED.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
