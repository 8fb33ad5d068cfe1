"""Modules that wait until they are used."""

import subprocess
import sys
import threading

from xdplab.lazy import lazily

WAITING = """
import sys
from xdplab.lazy import lazily
with lazily():
    import colorsys
    import xml.dom as dom
    from wsgiref import headers, util as named
loaded = lambda: {"colorsys", "xml.dom", "wsgiref.headers", "wsgiref.util"} & set(sys.modules)
assert not loaded()
assert colorsys.rgb_to_hsv(0, 0, 1) and named.FileWrapper and loaded() == {"colorsys", "wsgiref.util"}
assert dom.Node and headers.Headers and len(loaded()) == 4
import this_is_no_module
"""


def test_what_a_block_imports_is_loaded_when_it_is_used_and_what_follows_it_at_once() -> None:
    ended = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'this_is_no_module'"


def test_the_imports_of_another_thread_do_not_wait() -> None:
    found = []
    other = threading.Thread(target=lambda: found.append(__import__("colorsys")))
    with lazily():
        other.start()
        other.join()
    assert found == [sys.modules["colorsys"]]
