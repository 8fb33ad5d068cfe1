"""The page that sets a run beside the published study: each number, and why it agrees or does not."""

import re
from pathlib import Path

import pandas as pd
import pytest
from tests.studies.verifier.rows import loop, prevails, row, table

from xdplab.studies.verifier import summaries
from xdplab.studies.verifier.paper import against_paper, page
from xdplab.studies.verifier.views import VIEWS


def answers(*rows: dict[str, object], largest: pd.DataFrame | None = None) -> dict[str, tuple[str, str]]:
    """Return, for each experiment of the paper, the run's result and whether it agrees."""
    found = against_paper(table(*rows), pd.DataFrame() if largest is None else largest)
    return {r.experiment: (r.ours, r.agrees) for r in found.itertuples(index=False)}


def test_the_papers_acceptance_is_beside_the_runs_with_the_environment_apart():
    rows = [
        row(program="a"),
        row(program="b", verdict="environment", cause="helper not available"),
        row(program="c", verdict="rejected", cause="R1 invalid mem access"),
    ]
    found = answers(*rows)
    assert found["programs accepted as found, Linux 6"] == (
        "1 of 3",
        "no: 1 stopped before a verifier saw it, 1 refused by the verifier",
    )
    ours, agrees = found["programs accepted, environment apart, Linux 6"]
    assert ours == "1 of 2"
    assert agrees.startswith("no: 1 × R1 invalid mem access")
    assert "left out: 1 × helper not available: try a newer kernel" in agrees
    assert found[MENDED][1] == "unknown: needs OBJECTS on two kernels"
    assert answers(row())["programs accepted as found, Linux 6"] == ("1 of 1", "yes")


MENDED = "programs accepted, environment mended by another kernel of the run"


def test_a_caption_counts_a_program_once_though_verifiers_name_it_differently():
    both = table(row(section="xdp", program="f"), prevails(section="xdp", program="xdp"))
    caption = VIEWS["prevail-time"](both).look.words.caption
    assert caption[0].startswith("1 program, Linux 6 and PREVAIL")
    assert "PREVAIL: one whole process" in caption[1]  # the two times are not of the same work


def test_the_papers_page_counts_a_program_once_and_names_the_other_verifier():
    made = page(table(row(), prevails(program=None), row(family="branches", n=3, sha256="2")), pd.DataFrame(), "it")
    assert "This one is of Linux 6 against PREVAIL, with 1 program of c and the generated families." in made


def test_what_one_kernel_lacks_is_mended_by_another_that_accepts_it():
    def kernel(release: str, program: str, **fields: object) -> dict[str, object]:
        return row(label=f"Linux {release}", kernel_release=release, program=program, **fields)

    lockdown = {"verdict": "environment", "cause": "helper not available (lockdown takes it away)"}
    option = {"verdict": "environment", "cause": "kernel configuration (helper needs CONFIG_X)"}
    rows = [kernel("6.18", "a"), kernel("6.18", "b", **lockdown), kernel("6.1", "a"), kernel("6.1", "b")]
    found = answers(*rows)
    _, agrees = found["programs accepted, environment apart, Linux 6.18"]
    assert agrees == "yes; left out: 1 × helper not available (lockdown takes it away): 1 accepted by Linux 6.1"
    assert found[MENDED] == ("2 of 2", "yes")
    rows += [kernel("6.18", "c", **option), kernel("6.1", "c", **option)]
    assert answers(*rows)[MENDED] == ("2 of 3", "no: 1 × kernel configuration (helper needs CONFIG_X)")
    told = summaries.environment(table(*rows)).set_index(["kernel", "cause"])
    assert told.loc[("Linux 6.18", lockdown["cause"]), ["programs", "accepted elsewhere", "by"]].tolist() == [
        1, 1, "Linux 6.1",
    ]  # fmt: skip
    assert told.loc[("Linux 6.1", option["cause"]), "remedy"] == "a kernel built with the option (--kernel bzImage)"
    assert told.loc[("Linux 6.1", option["cause"]), "accepted elsewhere"] == 0


def test_every_cause_of_the_loaders_environment_has_a_remedy_or_says_that_none_is_known():
    text = (Path(__file__).parents[3] / "native" / "bpfverify" / "verdict.c").read_text()
    causes = set(re.findall(r'(?:ENVIRONMENT|NO_TYPE),\s*"([^"]+)"', text))
    assert len(causes) > 10
    assert {cause for cause in causes if summaries.remedy(cause) == summaries.NO_REMEDY} == {"interrupted"}


def test_prevails_cost_of_a_loop_is_judged_from_three_iterations_on():
    costs = {1: (1e6, 1e6), 3: (5e6, 4e6), 10: (5e6, 9e6), 100: (6e6, 9e6)}
    rows = [
        prevails(**loop(n, load_ns=t, memory_bytes=m, repetition=at) | {"label": "P", "verifier": "p"})
        for n, (t, m) in costs.items()
        for at in (1, 2)
    ]
    found = answers(*rows, *(loop(n) for n in costs))
    assert found["double_strcmp rolled: PREVAIL's time, ms, P"] == (
        "5.0 at N = 3, 6.0 at N = 100 (× 1.20)", "yes",
    )  # fmt: skip
    assert found["double_strcmp rolled: PREVAIL's memory, kB, P"][1] == "no: it grows"
    slow = [loop(n, load_ns=12e6, repetition=at) for n in costs for at in (1, 2)]
    once = answers(*rows[::2], *slow[::2])
    assert {once["double_strcmp rolled: PREVAIL's time, ms, P"][1], once["rolled loops: PREVAIL against Linux"][1]} == {
        "unknown: needs two repetitions"
    }
    older = [row | {"label": "Linux 5.10", "load_ns": 3e6} for row in slow]
    refused = [r | {"verdict": "rejected"} for r in rows]
    name = "rolled loops: PREVAIL against Linux"
    assert answers(*rows, *older[::2], *slow[::2])[name][1] == "unknown: needs two repetitions"
    assert answers(*rows, *slow)[name] == ("N = 100: Linux takes × 2.00 of P's time (its whole process)", "yes")
    assert answers(*refused, *slow)[name][1] == "yes; PREVAIL's verdict is rejected"
    memory = answers(*refused)["double_strcmp rolled: PREVAIL's memory, kB, P"]
    assert memory[1] == "no: it grows; PREVAIL's verdict is rejected"
    assert answers(rows[0], *slow)[name][1].startswith("unknown: needs a loop from N = 3")
    assert answers(loop(3))["double_strcmp rolled: PREVAIL's time, ms"][1].startswith("unknown: the run has no PREVAIL")


@pytest.mark.parametrize("verdict", ["complexity", "loader"])
def test_a_run_that_did_not_end_by_itself_has_no_cost(verdict: str):
    """Stopped at its limit, each size costs the limit: that is no fixpoint. One that broke has verified nothing."""
    rows = [prevails(**loop(n, load_ns=20e9) | {"label": "P", "verifier": "p", "verdict": verdict}) for n in (3, 100)]
    slow = [loop(n, load_ns=40e9) for n in (3, 100)]
    found = answers(*rows, *slow)
    assert found["double_strcmp rolled: PREVAIL's time, ms, P"][1].startswith("unknown: needs two sizes")
    assert found["rolled loops: PREVAIL against Linux"][1].startswith("unknown: needs a loop")
    sizes = [row(sha256=str(n), insns=n) for n in range(1, 8)]
    grows = [prevails(sha256=str(n), load_ns=n * 1e6, verdict=verdict if n > 5 else "accepted") for n in range(1, 8)]
    assert answers(*sizes, *grows)["PREVAIL's time against instructions, PREVAIL"] == (
        "rank correlation 1.00, n = 5; 2 broken or over a limit are left out", "yes",
    )  # fmt: skip


def test_programs_that_prevail_accepts_are_counted_among_those_that_it_read():
    rows = [prevails(sha256=str(n)) for n in range(8)]
    rows += [prevails(sha256="8", verdict="loader", cause="no such section")]
    name = "programs accepted by PREVAIL, PREVAIL"
    assert answers(*rows)[name] == ("8 of 8; it cannot read 1", "yes")
    rows += [prevails(sha256=f"{n}b", verdict="rejected", cause="21: too bad (r1)") for n in range(2)]
    assert answers(*rows)[name] == ("8 of 10; it cannot read 1", "no: it refuses 2 × too bad")


def test_a_rolled_loop_whose_instructions_grow_is_named():
    name = "double_strcmp rolled: instructions against N"
    assert answers(loop(3), loop(10))[name] == ("1 of 1 builds, N = 3 to 10", "yes")
    assert answers(loop(3), loop(10, insns=11))[name] == ("0 of 1 builds, N = 3 to 10", "no: clang 18 + v4")
    assert answers(loop(1), loop(3))[name][1].startswith("unknown")


def test_the_papers_instruction_counts_are_judged_one_by_one():
    def build(*counts: int) -> list[dict[str, object]]:
        return [loop(n, insns=count, mcpu="v2", compiler="clang 14") for n, count in enumerate(counts, 1)]

    name = "instructions with 1, 2, ≥ 3 iterations, clang 14 + v2"
    assert answers(*build(23, 70, 62))[name] == ("21, 68, 60", "yes")
    assert answers(*build(24, 64, 55))[name] == ("22, 62, 53", "no: +1, -6, -7")
    assert answers(*build(21, 68, 60)[:2])[name][1] == "unknown: this build is not in the run"


def test_branches_are_those_of_the_corpus_and_not_of_sizes_that_were_chosen():
    name = "branches (push_stack calls) against instructions, Linux 6"
    own = row(branches=20, insns=10)
    made = row(branches=900, insns=10, sha256="2", family="pruning", corpus="pruning")
    assert answers(own, made)[name][0] == "2.000 per instruction, n = 1"
    assert answers(made)[name][0] == "90.000 per instruction, n = 1"


def test_a_newer_kernel_that_costs_more_does_not_agree():
    def kernel(release: str, work: int) -> dict[str, object]:
        return row(label=f"Linux {release}", kernel_release=release, processed_insns=work, memory_bytes=work)

    name = "cost of a newer kernel, same programs"
    ours, agrees = answers(kernel("6.12.1", 200), kernel("6.1.9", 100))[name]
    assert ours.startswith(
        "Linux 6.12.1 against Linux 6.1.9: processed_insns × 2.000 of 1 program, memory_bytes × 2.000"
    )
    unknown = [kernel(release, 100) | {"sha256": "2", "memory_bytes": None} for release in ("6.12.1", "6.1.9")]
    both = answers(kernel("6.12.1", 400), kernel("6.1.9", 100), *unknown)[name][0]
    assert "processed_insns × 2.000 of 2 programs, memory_bytes × 4.000 of 1 program (" in both
    assert agrees.startswith("no: more")
    assert answers(kernel("6.12.1", 100), kernel("6.1.9", 100))[name][1] == "yes"
    assert answers(kernel("6.1.9", 100))[name][1].startswith("unknown")


def test_the_papers_prevail_experiments_need_a_prevail():
    sizes = [row(sha256=str(n), insns=n) for n in range(1, 8)]
    alone = answers(*sizes)
    assert alone["PREVAIL's time against instructions"][1].startswith("unknown: the run has no PREVAIL")
    grows = [prevails(sha256=str(n), load_ns=n * 1e6, memory_bytes=8e6 - n) for n in range(1, 8)]
    found = answers(*sizes, *grows)
    assert found[f"PREVAIL's time against instructions, {grows[0]['label']}"] == ("rank correlation 1.00, n = 7", "yes")
    assert found[f"PREVAIL's memory against instructions, {grows[0]['label']}"][1].startswith("no")
    assert found["programs that one verifier refuses and the other accepts"][1] == "yes"


def test_every_figure_that_the_papers_page_names_is_one():
    sizes = [row(sha256=str(n), insns=n) for n in range(1, 8)]
    named = set(against_paper(table(*sizes), pd.DataFrame())["figure"].dropna())
    assert named <= {*VIEWS, *summaries.TABLES, "largest"}


def test_an_experiment_without_rows_is_unknown_and_not_left_out():
    found = answers(row())
    for form in ("rolled", "unrolled"):
        assert found[f"double_strcmp {form}: memory, bytes"][1].startswith("unknown")


@pytest.mark.parametrize(
    ("times", "ours", "agrees"),
    [
        ([(9.0, 8.0)], "9,000,000 at N = 10, 8,000,000", "unknown: needs two repetitions"),
        ([(9.0, 8.0), (1.0, 8.0), (1.0, 8.0)], "1,000,000 at N = 10, 8,000,000", "unknown: repetitions differ"),
        ([(1.0, 8.0), (2.0, 9.0), (3.0, 10.0)], "2,000,000 at N = 10, 9,000,000", "yes"),
        ([(9.0, 8.0), (9.0, 8.0)], "9,000,000 at N = 10, 8,000,000", "no: it does not grow"),
    ],
)
def test_a_time_is_the_median_of_repetitions_which_agree_whether_it_grows(times, ours, agrees):
    """The first repetition alone was taken: a busy machine took less for thirty than for ten."""
    rows = [
        loop(n, repetition=repetition, trial_id=f"{n}-r{repetition}", verify_ns=ms * 1e6, load_ns=ms * 1e6)
        for repetition, both in enumerate(times, start=1)
        for n, ms in zip((10, 30), both, strict=True)
    ]
    found = answers(*rows)["double_strcmp rolled: time, ns, Linux 6"]
    assert (found[0].startswith(ours), found[1]) == (True, agrees)


def test_prevails_time_is_the_median_of_its_repetitions():
    sizes = [loop(n) for n in (3, 30)]
    rows = [
        prevails(**loop(n) | {"label": "P", "verifier": "p", "repetition": at, "load_ns": ms * 1e6})
        for n, of_each in ((3, (40.0, 10.0, 10.0)), (30, (12.0, 11.0, 13.0)))
        for at, ms in enumerate(of_each, start=1)
    ]
    assert answers(*sizes, *rows)["double_strcmp rolled: PREVAIL's time, ms, P"] == (
        "10.0 at N = 3, 12.0 at N = 30 (× 1.20)", "yes",
    )  # fmt: skip
    apart = [row | {"load_ns": 90e6} if (row["n"], row["repetition"]) == (30, 3) else row for row in rows]
    assert answers(*sizes, *apart)["double_strcmp rolled: PREVAIL's time, ms, P"][1] == "unknown: repetitions differ"
