"""Parse the raw files of one attempt COUNT times: ``parse_raw.py ATTEMPT COUNT [slower]``.

With ``slower``, each line of the generator is read by the JSON parser once more.
"""

import gc
import json
import sys
from pathlib import Path

from xdplab.counters.columns import files_in, packets_counted
from xdplab.counters.readings import parsed
from xdplab.formats.generator import parse_output

attempt, count = Path(sys.argv[1]), int(sys.argv[2])
text = (attempt / "xdpgen.jsonl").read_text()
gc.disable()  # it would run at some calls and not at others
for _ in range(count):
    parsed.cache_clear()  # another attempt has other outputs
    assert parse_output(text).bursts
    assert dict(packets_counted(files_in(attempt / "counters"), "native"))
    if sys.argv[3:] == ["slower"]:
        assert [json.loads(line) for line in text.splitlines()]
