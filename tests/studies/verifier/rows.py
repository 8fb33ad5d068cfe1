"""Made-up rows of the verifier study, for tests of its tables, figures and page."""

import pandas as pd

from xdplab.run.frames import typed
from xdplab.studies.verifier.rows import COLUMNS, joined


def row(**fields: object) -> dict[str, object]:
    base = {c.name: None for c in COLUMNS}
    known = {
        "run_id": "r", "trial_id": "p-r1", "repetition": 1, "verifier": "linux", "kernel": "host", "label": "Linux 6",
        "clock": "time", "corpus": "c", "object": "o", "sha256": "s", "section": "xdp", "program": "p",
        "verdict": "accepted", "insns": 10, "insns_hash": "h", "verify_ns": 1e6, "load_ns": 2e6, "loads": 3,
        "processed_insns": 100, "memory_bytes": 1e5,
    }  # fmt: skip
    return base | known | fields


def table(*rows: dict[str, object]) -> pd.DataFrame:
    return joined(typed(rows, COLUMNS))


def prevails(**fields: object) -> dict[str, object]:
    return row(**{"label": "PREVAIL", "verifier": "p", "insns": None} | fields)


def loop(n: int, **fields: object) -> dict[str, object]:
    known = {"family": "double_strcmp", "form": "rolled", "exit": "<", "maps": "btf", "compiler": "clang 18"}
    return row(**known | {"sha256": str(n), "n": n, "mcpu": "v4"} | fields)
