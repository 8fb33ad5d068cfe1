"""What the three parsers of the thesis' raw logs share: anomalies with names, and the first look at a file.

Format and source: I. F. Capeletti, "Análise de Desempenho de Aplicações eBPF/XDP em Planos de Dados Programáveis",
Unipampa 2022. A truncated log causes neither a crash nor a zero: readable values are kept, absent values are NaN, and
an Anomaly says what is wrong with the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AnomalyKind = Literal["empty", "binary", "foreign", "truncated", "damaged", "appended_runs", "no_traffic"]


@dataclass(frozen=True)
class Anomaly:
    """What is wrong with one file. ``line`` is 1-based, None if the whole file is meant.

    empty, binary, foreign: none of it can be used. truncated: it ends too early. damaged: lines in between cannot be
    read. appended_runs: it holds several runs one after another. no_traffic: the sender wrote no row.
    """

    kind: AnomalyKind
    text: str
    line: int | None = None


def unreadable(data: bytes, title: bytes) -> Anomaly | None:
    """Return why ``data`` cannot be one of the logs whose first line holds ``title``, or None if it can."""
    if not data or data.isspace():
        return Anomaly("empty", f"{len(data)} bytes, none of them text")
    if b"\0" in data:
        return Anomaly("binary", "NUL bytes", line=data.count(b"\n", 0, data.index(b"\0")) + 1)
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError as error:
        return Anomaly("binary", "bytes that are no text", line=data.count(b"\n", 0, error.start) + 1)
    first = data[: data.find(b"\n") + 1 or len(data)]
    if title not in first:
        return Anomaly("foreign", f"begins with {first[:60].decode(errors='replace')!r}", line=1)
    return None
