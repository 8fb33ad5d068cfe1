"""What is bisected: the commits of a user's repository, or kernels in their order, of one program.

Of commits git itself bisects, in a clone that shares the user's objects.

A worktree would stand in the user's repository, and run its hooks. The clone has its own index, HEAD and references:
nothing is written into the repository.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from xdplab import trust
from xdplab.bisect.search import Answer, Candidate, Revision
from xdplab.errors import HostError, PlanError, ProgramError
from xdplab.hosts.local import LocalHost
from xdplab.labs.base import ARCHITECTURE_MARK
from xdplab.studies.cost.gathering import settings_at
from xdplab.studies.guests import counting_kernel, kernel_release
from xdplab.text import natural

BUILD_S = 1800.0
_LOCAL = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE",
          "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES")  # fmt: skip
"""What a hook or `git bisect run` sets, and what would lead to its repository."""


class Repository:
    """A folder in a user's repository. It is only read. Raises PlanError for a folder of none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            raise PlanError(f"--repo {folder}: there is no such folder")
        self.top = Path(git(folder, "rev-parse", "--show-toplevel", what=f"--repo {folder}"))

    def commit(self, option: str, name: str) -> str:
        """Return the hash of a revision. Raises PlanError."""
        try:
            return git(self.folder, "rev-parse", "--verify", "-q", "--end-of-options", f"{name}^{{commit}}")
        except PlanError:
            raise PlanError(f"{option} {name}: {self.folder} has no such commit") from None

    def require_ancestor(self, good: str, bad: str) -> None:
        """Raise PlanError unless the bad commit came from the good one."""
        if good == bad:
            raise PlanError(f"nothing to find: --good and --bad are one commit, {good[:12]}")
        if git(self.folder, "merge-base", good, bad, fine=(0, 1)) != good:
            raise PlanError(
                f"--good {good[:12]} is not an ancestor of --bad {bad[:12]}", remedy="name a commit that bad came from"
            )

    def inside(self, file: str) -> str:
        """Return the path of a file in the repository. It may be in some commits only. Raises PlanError."""
        path = Path(os.path.normpath(self.folder.resolve() / file))
        if not path.is_relative_to(self.top.resolve()):
            raise PlanError(f"{file} is not inside of {self.top}", remedy="name it as it is below --repo")
        return str(path.relative_to(self.top.resolve()))

    def require_trust(self, build: str) -> None:
        """Raise StrangersFileError if others may have written the repository whose code a build runs."""
        head = Path(git(self.folder, "rev-parse", "--absolute-git-dir")) / "HEAD"
        trust.read_source(head).require_trust(f"what `{build}` runs in its commits")


class Commits:
    """The commits from ``good``, not included, to ``bad``, and a program in each; ``clone`` is the folder to work in.

    ``candidate``: the program's file in the repository, the kernel that it is measured in, and its settings: flags that
    look into the repository look into the commit.
    """

    def __init__(
        self,
        repository: Repository,
        good: str,
        bad: str,
        candidate: tuple[str, str, str],
        build: str | None,
        clone: Path,
    ) -> None:
        (self._file, self._kernel, self._settings), self._build, self._clone = candidate, build, clone
        self._top = repository.top.resolve()
        shutil.rmtree(clone, ignore_errors=True)
        git(clone.parent, "clone", "-q", "--shared", "--no-checkout", "-c", "core.hooksPath=/dev/null",
            str(repository.top), clone.name)  # fmt: skip
        self._git("checkout", "-q", "--detach", bad)
        self._git("bisect", "start", "--no-checkout", bad, good)
        self.good, self.bad = self.revision(good), self.revision(bad)
        self._skipped: set[str] = set()

    @cached_property
    def total(self) -> int:
        return len(self.suspects())

    def revision(self, name: str) -> Revision:
        (revision,) = self._log("--no-walk", name)
        return revision

    def _log(self, *which: str) -> list[Revision]:
        """Return commits, the oldest first."""
        form = ("-c", "log.showSignature=false", "log", "--topo-order", "--reverse", "-z")
        lines = self._git(*form, "--format=%H%x01%h %s (%an, %as)", *which)
        return [Revision(*line.split("\x01", 1)) for line in filter(None, lines.split("\0"))]

    def choose(self) -> Revision | None:
        left = {one.key for one in self.suspects()[:-1]} - self._skipped
        return self.revision("BISECT_HEAD") if left else None

    def mark(self, revision: Revision, answer: Answer) -> None:
        if answer == "skip":
            self._skipped.add(revision.key)
        self._git("bisect", answer, revision.key, fine=(0, 2))  # 2: only skipped ones are left

    def suspects(self) -> list[Revision]:
        return self._log("refs/bisect/bad", "--not", "--glob=refs/bisect/good-*")

    def before(self) -> Revision:
        """Return the parent of a single suspect; of several, the good commit from which the fewest lead to the bad."""
        suspects = self.suspects()
        if len(suspects) == 1:
            return self.revision(f"{suspects[0].key}^")
        good = self._git("for-each-ref", "--format=%(objectname)", "refs/bisect/good-*").split()
        distance = {one: int(self._git("rev-list", "--count", f"{one}..{suspects[-1].key}")) for one in good}
        return self.revision(min(good, key=lambda one: distance[one]))

    @contextmanager
    def candidate(self, revision: Revision) -> Iterator[Candidate]:
        self._git("checkout", "-q", "--force", "--detach", revision.key)
        self._git("clean", "-ffdxq")  # what another commit's build left
        if self._build is not None:
            self._run_build(self._build)
        path = self._clone / self._file
        if not path.is_file():
            raise ProgramError(f"there is no {self._file}", remedy="FILE is a path below --repo")
        yield Candidate(path, self._kernel, settings_at(self._settings, self._top, self._clone.resolve()))

    def _run_build(self, build: str) -> None:
        script = f"cd {shlex.quote(str(self._clone))} && {build}"
        try:
            LocalHost().run(["sh", "-c", script], deadline_s=BUILD_S)
        except HostError as error:
            raise ProgramError(f"`{build}` failed: {error.message.rpartition('`')[2].strip()}") from None

    def _git(self, *arguments: str, fine: tuple[int, ...] = (0,)) -> str:
        return git(self._clone, *arguments, fine=fine)

    def close(self) -> None:
        shutil.rmtree(self._clone, ignore_errors=True)


def git(folder: Path, *arguments: str, what: str = "", fine: tuple[int, ...] = (0,)) -> str:
    """Return what git prints in a folder. Raises PlanError with its last line, after ``what`` was to be done."""
    environment = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            env=environment | {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"},
        )
    except FileNotFoundError:
        raise PlanError("git is not installed", remedy="apt install git") from None
    if done.returncode not in fine:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        words = next((line for line in lines if line.startswith(("fatal: ", "error: "))), lines[-1])
        raise PlanError(f"{what or f'git {arguments[0]}'}: {words.removeprefix('fatal: ')}")
    return done.stdout.strip("\n")


def in_order(good: str, bad: str, between: Sequence[str], tested: Sequence[str]) -> tuple[str, ...]:
    """Return the kernels from good to bad: with those ``between``, in the order given, or else with the ``tested`` ones
    whose versions lie between. Raises PlanError for a kernel that is named twice, LabError for one that is none."""
    version, _, architecture = good.partition(ARCHITECTURE_MARK)
    if not between:
        last = bad.partition(ARCHITECTURE_MARK)[0]
        mark = f"{ARCHITECTURE_MARK}{architecture}" if architecture else ""
        inside = [one for one in tested if natural(version) < natural(one) < natural(last)]
        between = [f"{one}{mark}" for one in sorted(inside, key=natural)]
    names = tuple(map(counting_kernel, (good, *between, bad)))
    if len(set(names)) != len(names):
        raise PlanError(f"a kernel is named twice: {', '.join(names)}", remedy="--good OLD --bad NEW, each once")
    return names


def revision(name: str) -> Revision:
    return Revision(name, f"Linux {kernel_release(name)}")


class Kernels:
    """Kernels of which the first is good and the last bad."""

    def __init__(self, revisions: Sequence[Revision], file: Path, settings: str) -> None:
        self._all, self._file, self._settings = list(revisions), file, settings
        self._good, self._bad = 0, len(revisions) - 1
        self._skipped: set[str] = set()
        self.good, self.bad, self.total = self._all[0], self._all[-1], self._bad

    def choose(self) -> Revision | None:
        """Return the one nearest to the middle."""
        left = [n for n in range(self._good + 1, self._bad) if self._all[n].key not in self._skipped]
        middle = (self._good + self._bad) / 2
        return self._all[min(left, key=lambda n: abs(n - middle))] if left else None

    def mark(self, revision: Revision, answer: Answer) -> None:
        number = self._all.index(revision)
        if answer == "good":
            self._good = number
        elif answer == "bad":
            self._bad = number
        else:
            self._skipped.add(revision.key)

    def suspects(self) -> list[Revision]:
        return self._all[self._good + 1 : self._bad + 1]

    def before(self) -> Revision:
        return self._all[self._good]

    @contextmanager
    def candidate(self, revision: Revision) -> Iterator[Candidate]:
        yield Candidate(self._file, revision.key, self._settings)

    def close(self) -> None:
        """Nothing was made."""
