"""Set every option of every estimator in every mode: it must change the model, or be refused.

    python benchmarks/walk_options.py [--output results/walk_options.json] [--only ECRTRegressor]

Each option is set away from its default, the rules about options without effect are put aside, and the fitted model
is compared with the one before: its modules, what it predicts, and what it draws. An option that changes nothing must
be one that the rules refuse, and one that they refuse must change nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from options_walk import ESTIMATORS, modes, walk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("results/walk_options.json"))
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    found = []
    for kind in ESTIMATORS:
        if chosen.only in ("", kind.__name__):
            for mode, given in modes(kind):
                for one in walk(kind, mode, given):
                    found.append(one)
                    if one["refused"] == one["changes"] and not one["error"]:
                        print(one, flush=True)
    silent = [one for one in found if not one["refused"] and not one["changes"]]
    wrong = [one for one in found if one["refused"] and one["changes"] and not one["error"]]
    result = {
        "command": "python benchmarks/walk_options.py",
        "pairs": len(found),
        "refused": sum(one["refused"] for one in found),
        "other errors": sorted({f"{one['option']}: {one['error']}" for one in found if one["error"]}),
        "without effect and not refused": silent,
        "refused and with effect": wrong,
    }
    chosen.output.write_text(json.dumps(result, indent=1) + "\n")
    print(
        {name: value if isinstance(value, int) else len(value) for name, value in result.items() if name != "command"}
    )


if __name__ == "__main__":
    main()
