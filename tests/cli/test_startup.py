"""A command imports only what it uses: the imports of help, errors, `status`, `plan` and `lab status`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from tests.unpack import unpacked

from xdplab.cli import VERBS
from xdplab.cli.common import Verb
from xdplab.cli.study import STUDIES

RECORDED = Path(__file__).parents[1] / "run" / "recorded" / "tiny.tar.xz"
SAMPLE = str(Path(__file__).parents[2] / "results" / "sample")
HEAVY = (
    "pandas", "numpy", "matplotlib", "scipy", "seaborn", "pyarrow", "distributed", "dask", "paramiko", "unicorn",
    "MLRsearch",
)  # fmt: skip
MOST_OWN_MODULES = 150
"""Only modules outside the standard library count: its size depends on the Python. The heaviest command loads 112."""
SAY = """
import sys
from xdplab.cli import main
sys.argv = ["xdplab", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""

FORKS = """
import json, os, sys
from xdplab.cli import main
for line in sys.stdin:
    answer, said = os.pipe()
    if os.fork() == 0:
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        sys.argv, code = ["xdplab", *json.loads(line)], 1
        try:
            main()
        except SystemExit as end:
            code = end.code
        finally:
            os.write(said, json.dumps([code, *sys.modules]).encode())
            os._exit(0)
    os.close(said)
    os.wait()
    with open(answer, "rb") as reader:
        print(reader.read().decode(), flush=True)
"""
"""Run each command in a process that has loaded only the list of verbs, as every command does at its start."""

HELP = [[*words, "--help"] for words in (
    [], *([verb] for verb in VERBS), *(["study", name] for name in STUDIES),
    *(["lab", verb] for verb in ("up", "down", "status", "run", "kernels")),
    *(["programs", verb] for verb in ("build", "show", "prove")), ["import", "thesis"],
)]  # fmt: skip
WRONG = [["no-such-verb"], ["figures", "--no-such-option"], ["study", "verifier", "-x"]]
NO_RUN = [
    [*words, "absent"] for words in (["resume"], ["status"], ["tables"], ["figures"], ["audit"], ["compare", "x"])
]
NO_PLAN = [[verb, "absent.yaml"] for verb in ("run", "plan", "search", "calibrate")]
NO_LAB = [
    ["--lab", "absent", *words]
    for words in (["doctor"], ["restore"], ["lab", "up", "absent"], ["lab", "down", "absent"])
]


def modules(*words: str) -> tuple[int, set[str]]:
    """Return the exit code of a command, and what it imported, in an interpreter of its own."""
    done = subprocess.run([sys.executable, "-c", SAY, *words], capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, set(done.stderr.splitlines()[-1].split())


Loaded = Callable[..., tuple[int, set[str]]]


@pytest.fixture(scope="module")
def loaded_by() -> Iterator[Loaded]:
    """The same as `modules`, in a fourth of the time."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def ask(*words: str) -> tuple[int, set[str]]:
            print(json.dumps(words), file=server.stdin, flush=True)
            code, *loaded = json.loads(server.stdout.readline())
            return code, set(loaded)

        yield ask
        server.stdin.close()


def require_light(loaded: set[str], *used: str) -> None:
    unwanted = {*HEAVY, "pydantic", "rich", "jinja2"} - set(used)
    assert not unwanted & loaded, sorted(unwanted & loaded)
    own = {name for name in loaded if name.partition(".")[0] not in sys.stdlib_module_names}
    assert len(own) <= MOST_OWN_MODULES + 100 * len(used), sorted(own)


@pytest.mark.parametrize("words", [*HELP, *WRONG, *NO_RUN, *NO_PLAN, *NO_LAB], ids=" ".join)
def test_help_and_errors_load_no_library_that_reads_plans_measures_or_draws(
    loaded_by: Loaded, words: list[str]
) -> None:
    code, loaded = loaded_by(*words)
    if words in WRONG or words in NO_RUN:
        assert code not in (0, 1)
    else:
        assert code == (0 if words in HELP else 2 if words in NO_PLAN else 3)
    require_light(loaded)
    if words in HELP and "study" not in words:  # the other studies' requests name places
        assert not {"xdplab.labs", "xdplab.studies.environment"} & loaded


def test_the_status_of_a_run_needs_no_tables(tmp_path: Path) -> None:
    unpacked(RECORDED, tmp_path)
    code, loaded = modules("status", str(next(tmp_path.iterdir())), "--json")
    assert code == 0
    require_light(loaded)


@pytest.mark.parametrize("words", [["plan", "quick", "--json"], ["plan", "quick"]], ids=" ".join)
def test_a_plan_is_shown_without_what_measures_it(words: list[str]) -> None:
    code, loaded = modules(*words)
    assert code == 0
    require_light(loaded, "pydantic")


@pytest.mark.parametrize("verb", ["show", "audit", "compare"])
def test_what_draws_nothing_loads_no_library_that_draws(verb: str, tmp_path: Path) -> None:
    """It would be a fifth of the CPU time of `show`, and of what `run --no-figures` does besides measuring."""
    run = str(shutil.copytree(SAMPLE, tmp_path / "run"))  # nothing is kept of it yet
    code, loaded = modules(verb, run, *([run] if verb == "compare" else []))
    assert code in (0, 1, 2)  # compare and audit answer with it
    assert {"pandas", "xdplab.studies.traffic.kind"} <= loaded
    assert not {"matplotlib", "seaborn", "xdplab.figures.draw"} & loaded


def test_what_measures_needs_no_tables() -> None:
    """They are loaded while a session waits for its hosts."""
    code = "import sys, xdplab.studies.traffic.kind, xdplab.cli.conduct; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert not {"pandas", "numpy", "pyarrow", "matplotlib", "scipy", "unicorn"} & set(done.stdout.split())


def test_the_labs_that_are_up_are_listed_without_ssh() -> None:
    code, loaded = modules("lab", "status", "--json")
    assert code == 0
    require_light(loaded)


@pytest.mark.parametrize("words", [["--help"], ["status", "absent"], ["--lab", "absent", "doctor"]], ids=" ".join)
def test_a_fork_loads_what_an_interpreter_of_its_own_does(loaded_by: Loaded, words: list[str]) -> None:
    (code, own), (forked_code, forked) = modules(*words), loaded_by(*words)
    assert (forked_code, forked - {"json.decoder", "json.encoder", "json.scanner", "json", "_json"} - own) == (
        code,
        set(),
    )


@pytest.mark.parametrize("name", [*VERBS, *STUDIES])
def test_a_verb_that_is_listed_can_be_loaded(name: str) -> None:
    verb: Verb = (VERBS | STUDIES)[name]
    command = verb.load()
    assert isinstance(command, click.Command)
    assert command.name == name
    assert len(verb.help) <= 80
