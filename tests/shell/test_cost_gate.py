"""The gate for pull requests: action.yml and gitlab/xdplab-cost.yml, their steps run as the runners run them.

Set-up is a double's, but in fresh roots of Debian.
"""

import json
import re
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from tests.shell.pipelines import Workflow, merge_request

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
SEC("xdp") int drop(struct xdp_md *context)
{
    /* planted */
    return XDP_DROP;
}
char LICENSE[] SEC("license") = "Dual BSD/GPL";
"""
PLANTED = PROGRAM.replace("/* planted */", 'asm volatile("r2 = 1" ::: "r2");')
FAKE_XDPLAB = """#!/bin/sh
echo "$*" >>"$LOG"
case $1 in cost) while [ "$1" != --out ]; do shift; done; mkdir -p "$2/run" && touch "$2/run/journal.jsonl"
    cat "$ANSWER"; exit "$CODE" ;;
report) touch "$4"; exit "${REPORT:-0}" ;; esac
"""


def checkout(folder: Path, bin: Path) -> Path:
    """Return a checkout of xdplab whose set-up has made the environment in ``bin``."""
    for name in ("action.yml", "requirements.lock", "shell/cost_gate.sh"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "shell/setup.sh").write_text(f'#!/bin/sh\n[ "$1" = --where ] && echo {bin.parent}\ntrue\n')
    (folder / "shell/setup.sh").chmod(0o755)
    return folder


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    return subprocess.run(
        ["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def pull_request(folder: Path, program: str) -> tuple[Path, str]:
    """Return a shallow checkout whose newest commit has ``program``, and the commit before, upstream's branch base."""
    upstream = folder / "upstream"
    for text in (PROGRAM, program):
        upstream.mkdir(parents=True, exist_ok=True)
        git(upstream, "init", "-q")
        (upstream / "mine.bpf.c").write_text(text)
        git(upstream, "add", ".")
        git(upstream, "commit", "-q", "--allow-empty", "-m", "x")
    git(upstream, "branch", "base", "HEAD~1")
    git(folder, "clone", "-q", "--depth=1", f"file://{upstream}", "work")
    return folder / "work", git(upstream, "rev-parse", "HEAD~1")


class Comments(BaseHTTPRequestHandler):
    """A pull request's comments, as GitHub and GitLab serve them: at most 100 in a page."""

    kept: dict[int, str]
    methods: list[str]

    def _answer(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200 if self.headers["Authorization"] == "Bearer secret" else 403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        query = {"page": 1, "per_page": 30} | {
            name: int(value) for name, (value,) in parse_qs(urlsplit(self.path).query).items()
        }
        begin = (query["page"] - 1) * query["per_page"]
        page = list(self.kept.items())[begin : begin + min(query["per_page"], 100)]
        self._answer([{"id": number, "body": body} for number, body in page])

    def _write(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        last = self.path.rpartition("/")[2]
        self.kept[int(last) if last.isdecimal() else len(self.kept) + 1] = body
        self.methods.append(self.command)
        self._answer({})

    do_POST = do_PATCH = do_PUT = _write

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def comments() -> Iterator[tuple[str, type[Comments]]]:
    class Kept(Comments):
        kept = dict.fromkeys(range(1, 201), "a person's")
        methods: list[str] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), Kept) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", Kept
        server.shutdown()


def event(base: str, api: str = "http://none.invalid") -> dict[str, object]:
    request = {"number": 7, "base": {"sha": base}}
    return {"api_url": api, "repository": "me/mine", "event": {"pull_request": request}}


class Faked:
    """A job whose `xdplab` answers ``table`` and ``code``."""

    def __init__(self, folder: Path, table: str = "| old | new |\n", code: int = 0) -> None:
        self.folder, self.log = folder, folder / "log"
        bin = folder / "environment/bin"
        bin.mkdir(parents=True)
        (bin / "xdplab").write_text(FAKE_XDPLAB)
        (bin / "xdplab").chmod(0o755)
        (bin / "python").symlink_to(sys.executable)
        (folder / "answer").write_text(table)
        self.environment = {"LOG": str(self.log), "ANSWER": str(folder / "answer"), "CODE": str(code)}
        self.action = checkout(folder / "action", bin)
        self.work, self.base = pull_request(folder, PROGRAM)

    def workflow(self, api: str = "http://none.invalid") -> Workflow:
        return Workflow(self.action, self.work, self.folder, event(self.base, api), self.environment)


def test_the_pull_requests_base_is_compared_with_in_each_kernel(tmp_path: Path) -> None:
    faked = Faked(tmp_path)
    done = faked.workflow().run(file="mine.bpf.c other.bpf.c", kernels="6.1 6.12", options="--tolerance 2")
    assert [one.returncode for one in done] == [0, 0, 0], done[-1].stderr
    cost, report = faked.log.read_text().splitlines()
    assert cost.startswith("cost mine.bpf.c other.bpf.c --kernel 6.1 --kernel 6.12 --tolerance 2 ")
    assert f"--against git:{faked.base}" in cost
    assert report.startswith("report ")
    assert git(faked.work, "cat-file", "-t", faked.base) == "commit"  # it was not in the shallow checkout


@pytest.mark.parametrize(
    ("baseline", "code", "against"), [("git:base", 0, ["--against git:{}"]), ("git:absent", 64, []), ("git:", 64, [])]
)
def test_a_branch_is_compared_with_by_its_commit(tmp_path: Path, baseline: str, code: int, against: list[str]) -> None:
    faked = Faked(tmp_path)
    *_, check = faked.workflow().run(file="mine.bpf.c", baseline=baseline)
    assert check.returncode == code
    counted = faked.log.read_text() if faked.log.exists() else ""
    assert re.findall(r"--against \S+", counted) == [one.format(faked.base) for one in against]


@pytest.mark.parametrize("code", [0, 1])
def test_without_its_page_a_check_answers_what_the_command_does(tmp_path: Path, code: int) -> None:
    faked = Faked(tmp_path, code=code)
    faked.environment["REPORT"] = "7"
    *_, check = faked.workflow().run(file="mine.bpf.c")
    assert check.returncode == code
    assert "::warning " in check.stdout


@pytest.mark.parametrize("code", [1, 2, 4])
def test_what_the_command_answers_fails_the_job_with_its_page_and_table(tmp_path: Path, code: int) -> None:
    workflow = Faked(tmp_path, "grown", code).workflow()
    *_, check = workflow.run(file="mine.bpf.c")
    assert check.returncode == code
    assert Path(workflow.outputs["table"]).read_text() == "grown"
    assert Path(workflow.outputs["page"]).exists()
    assert (tmp_path / "STEP_SUMMARY").read_text() == "grown"
    assert ["actions/cache" in one or "actions/upload-artifact" in one for one in workflow.left_out] == [True, True]
    assert workflow.outputs["page"] in workflow.left_out[1]
    assert "continue-on-error: true" in workflow.left_out[1]


def test_what_the_docs_let_a_user_paste_has_inputs_of_the_action() -> None:
    page = (ROOT / "docs/use/cost-gate.md").read_text()
    pasted = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (given,) = (step["with"] for one in pasted for job in one.get("jobs", {}).values() for step in job["steps"][1:])
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert {name for name, one in inputs.items() if one.get("required")} <= given.keys() <= inputs.keys()
    assert set(re.findall(r"^\| `(\w+)` \|", page.partition("| input |")[2].partition("In GitLab")[0], re.M)) == set(
        inputs
    )


def test_the_cache_is_another_one_for_other_kernels(tmp_path: Path) -> None:
    workflow = Faked(tmp_path).workflow()
    for kernels in ("6.12", "6.12", "6.1"):
        workflow.run(file="mine.bpf.c", kernels=kernels)
    first, again, other = (one for one in workflow.left_out if "actions/cache" in one)
    assert first == again != other


def test_without_a_key_no_cache_is_used(tmp_path: Path) -> None:
    faked = Faked(tmp_path)
    (faked.action / "requirements.lock").unlink()
    workflow = faked.workflow()
    (where,) = workflow.run(file="mine.bpf.c")
    assert where.returncode != 0
    assert not any("actions/cache" in one for one in workflow.left_out)


def test_a_word_of_an_input_is_no_command(tmp_path: Path) -> None:
    *_, check = Faked(tmp_path).workflow().run(file='"; touch injected; $(touch injected)')
    assert check.returncode == 0
    assert list(tmp_path.rglob("injected")) == []


def test_with_a_token_there_is_one_comment_and_each_check_renews_it(
    tmp_path: Path, comments: tuple[str, type[Comments]]
) -> None:
    api, served = comments
    faked = Faked(tmp_path, "| 1 |\n", 1)
    faked.workflow(api).run(file="mine.bpf.c")
    assert len(served.kept) == 200
    for table in ("| 1 |\n", "| 2 |\n"):
        (tmp_path / "answer").write_text(table)
        assert faked.workflow(api).run(file="mine.bpf.c", token="secret")[-1].returncode == 0
    assert served.methods == ["POST", "PATCH"]
    assert {served.kept.pop(number) for number in range(1, 201)} == {"a person's"}
    assert "| 2 |" in served.kept[201]


def test_a_refused_comment_is_a_warning(tmp_path: Path, comments: tuple[str, type[Comments]]) -> None:
    done = Faked(tmp_path).workflow(comments[0]).run(file="mine.bpf.c", token="wrong")
    assert done[-1].returncode == 0
    assert done[-1].stdout.startswith("::warning ")


@pytest.mark.parametrize("code", [0, 1])
def test_gitlab_runs_the_same_steps(tmp_path: Path, comments: tuple[str, type[Comments]], code: int) -> None:
    api, served = comments
    faked = Faked(tmp_path, "| 1 |\n", code)
    given = {"FILE": "mine.bpf.c", "XDPLAB_TOKEN": "secret", "CI_PROJECT_DIR": str(faked.work), "CI_API_V4_URL": api}
    given |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": faked.base, "CI_PROJECT_ID": "3", "CI_MERGE_REQUEST_IID": "7"}
    checkout(faked.work / ".xdplab/checkout", tmp_path / "environment/bin")
    for methods in (["POST"], ["POST", "PUT"]):
        job = merge_request(ROOT / "gitlab/xdplab-cost.yml", faked.work, given | faked.environment)
        assert job.script.returncode == code, job.script.stderr
        assert job.after.returncode == 0, job.after.stderr
        assert served.methods == methods
    assert f"--against git:{faked.base}" in faked.log.read_text()
    assert [(faked.work / path).exists() for path in job.artifacts] == [True]


@pytest.mark.thorough
@pytest.mark.guest
def test_green_without_a_change_and_red_with_one_planted_instruction(tmp_path: Path) -> None:
    action = checkout(tmp_path / "action", Path(sys.executable).parent)
    environment = {"XDG_CACHE_HOME": str(Path.home() / ".cache")}
    baseline = str(tmp_path / "base.json")
    answers = []
    for name, program, given in (
        ("green", PROGRAM, {"options": f"--write {baseline}"}),
        ("red", PLANTED, {"baseline": baseline}),
    ):
        work, base = pull_request(tmp_path / name, program)
        workflow = Workflow(action, work, tmp_path / name, event(base), environment)
        answers.append(workflow.run(file="mine.bpf.c", **given)[-1])
    assert [one.returncode for one in answers] == [0, 1], answers
    assert "| 9.000 | 10.000 | +1.000 | program |" in answers[1].stdout


ENTER = """mount --bind /dev "$0/dev" && mount -t proc proc "$0/proc" && mount -t sysfs sysfs "$0/sys" &&
cp /etc/resolv.conf "$0/etc" && exec chroot "$0" "$@\""""


def fresh_root(root: Path) -> tuple[str, ...]:
    """Make a root of Debian with what a runner has besides, and return how a command is begun in it."""
    include = "--include=ca-certificates,curl,git"
    subprocess.run(["unshare", "--mount", "debootstrap", "--variant=minbase", include, "bookworm", root], check=True)
    for path in Path("/usr/local/share/ca-certificates").glob("*.crt"):
        shutil.copy(path, root / "usr/local/share/ca-certificates")
    subprocess.run(["chroot", root, "update-ca-certificates"], check=True)
    subprocess.run(["git", "clone", "-q", ROOT, root / "action"], check=True)
    return ("unshare", "--mount", "sh", "-c", ENTER, str(root))


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.nightly
@pytest.mark.root
@pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed")
def test_in_a_fresh_root_it_is_green_from_nothing_and_red_with_the_cache(tmp_path: Path) -> None:
    cache, codes, used = tmp_path / "cache", [], []
    for name, program in (("nothing", PROGRAM), ("cached", PLANTED)):
        root = tmp_path / name
        inside = fresh_root(root)
        for kept in CACHED if cache.exists() else ():
            shutil.copytree(cache / kept, root / kept, symlinks=True)
        work, base = pull_request(root / "pr", program)
        git(work, "remote", "set-url", "origin", "file:///pr/upstream")
        workflow = Workflow(
            Path("/action"), Path("/pr/work"), Path("/tmp"), event(base), {"HOME": "/root"}, inside=inside, root=root
        )
        began_s, began_cpu_s = time.monotonic(), cpu_s()
        done = workflow.run(file="mine.bpf.c")
        used.append((time.monotonic() - began_s, cpu_s() - began_cpu_s))
        codes.append([one.returncode for one in done])
        for kept in () if cache.exists() else CACHED:
            shutil.copytree(root / kept, cache / kept, symlinks=True)
        shutil.rmtree(root)
        assert "/action/.venv" in workflow.left_out[0]
    assert codes == [[0, 0, 0], [0, 0, 1]]
    assert [wall_s < most_s for (wall_s, _), most_s in zip(used, (360, 90), strict=True)] == [True, True], used


CACHED = ("action/.venv", "root/.cache/xdplab")
"""What `actions/cache` keeps, which is left out here."""
