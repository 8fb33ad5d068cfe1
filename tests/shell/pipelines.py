"""What runs the steps of action.yml and of gitlab/xdplab-cost.yml as their runners do: from the YAML, by its shell.

`uses:` steps are other people's; `Workflow.left_out` has them.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SHELLS = {"bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")}
"""What GitHub's runner makes of `shell:`; it writes the script into a file, where this hands it over."""
Done = subprocess.CompletedProcess[str]


@dataclass
class Workflow:
    """A job that uses the action in ``action``, for a checkout in ``workspace``.

    ``inside``: how a command is begun within the root in which all paths are; ``root`` is that root from outside.
    """

    action: Path
    workspace: Path
    temp: Path
    event: Mapping[str, Any]
    environment: Mapping[str, str] = field(default_factory=dict)
    inside: Sequence[str] = ()
    root: Path = Path("/")
    left_out: list[str] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)

    def run(self, **given: str) -> list[Done]:
        """Run the steps with these inputs, and return what each `run:` of them did; one that fails ends the others."""
        text = self._outside(self.action / "action.yml").read_text()
        action = yaml.safe_load(text)
        contexts: dict[str, Any] = {"github": {**self.event, "action_path": str(self.action)}, "steps": {}}
        assert given.keys() <= action["inputs"].keys()
        contexts["inputs"] = {
            name: given[name] if name in given else resolved(str(one["default"]), contexts)
            for name, one in action["inputs"].items()
        }
        done: list[Done] = []
        for step in action["runs"]["steps"]:
            failed = any(one.returncode for one in done)
            if not _is_due(step.get("if", "success()"), contexts, failed):
                continue
            if "uses" in step:
                self.left_out.append(resolved(yaml.safe_dump(step), contexts))
                continue
            done.append(self._run(step, contexts))
        self.outputs = {name: resolved(one["value"], contexts) for name, one in action["outputs"].items()}
        return done

    def _outside(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    def _run(self, step: Mapping[str, Any], contexts: dict[str, Any]) -> Done:
        commands = {f"GITHUB_{name}": self.temp / name for name in ("OUTPUT", "ENV", "PATH", "STEP_SUMMARY")}
        for path in map(self._outside, commands.values()):
            path.touch()
        set_here = {name: resolved(str(value), contexts) for name, value in step.get("env", {}).items()}
        environment = {
            **self.environment,
            **{name: str(path) for name, path in commands.items()},
            "GITHUB_ACTION_PATH": str(self.action),
            "RUNNER_TEMP": str(self.temp),
            **set_here,
        }
        argv = (*SHELLS[step["shell"]], resolved(step["run"], contexts))
        done = executed(self.inside, argv, self.workspace, environment)
        output = self._outside(commands["GITHUB_OUTPUT"])
        pairs = dict(line.partition("=")[::2] for line in output.read_text().splitlines())
        output.write_text("")
        contexts["steps"][step.get("id", "")] = {"outputs": pairs}
        return done


def executed(inside: Sequence[str], argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Done:
    """Run a command in a folder; its environment has nothing else but how this machine fetches."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "PIP_CERT")}
    pairs = [f"{name}={value}" for name, value in {**kept, **environment}.items()]
    argv = [*inside, "env", "-i", "-C", str(folder), *pairs, *argv]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def resolved(text: str, contexts: Mapping[str, Any]) -> str:
    """Replace each ``${{ a.b }}``; an absent property is an empty text, as with the runner. Raises KeyError."""
    return re.sub(r"\$\{\{ ([a-z_.]+) \}\}", lambda match: _value(match[1], contexts), text)


def _value(name: str, contexts: Mapping[str, Any]) -> str:
    first, *others = name.split(".")
    value: Any = contexts[first]
    for part in others:
        value = value.get(part, {})
    return "" if value == {} else str(value)


def _is_due(condition: str, contexts: Mapping[str, Any], failed: bool) -> bool:
    """Tell whether a step runs by its `if:`, terms joined by &&. Raises KeyError for one that is not known here."""
    terms = condition.split(" && ")
    functions = {"success()": not failed, "always()": True}
    return all(
        functions[term] if term in functions else _value(term.removesuffix(" != ''"), contexts) != "" for term in terms
    )


@dataclass(frozen=True)
class MergeRequestJob:
    """What the only job of a GitLab template did: its script, and its after_script, which has a shell of its own."""

    script: Done
    after: Done
    artifacts: list[str]


def merge_request(template: Path, workspace: Path, given: Mapping[str, str]) -> MergeRequestJob:
    """Run the job of a template; what fetches xdplab, its before_script, is left out."""
    (job,) = yaml.safe_load(template.read_text()).values()
    variables = dict(given)
    for name, value in job["variables"].items():
        variables[name] = re.sub(r"\$(\w+)", lambda match: variables.get(match[1], ""), str(value))
    steps = ("\n".join(["set -eo pipefail", *job[part]]) for part in ("script", "after_script"))
    script, after = (executed((), ("bash", "-c", lines), workspace, variables) for lines in steps)
    return MergeRequestJob(script, after, job["artifacts"]["paths"])
