"""The check of a run's figures sees one system in another's place."""

import json
from itertools import permutations

import numpy as np
import pytest
from tiny_jobs import DATA, Numbers, jobs

from mmlib.core import regression
from mmlib.core.engine import tidy
from mmlib.core.evidence import Evidence, header
from mmlib.core.jobs import NO_SEED, Answer
from mmlib.core.regression import ROUNDING, check_paired, spread

LEVELS = {"a": 50.0, "b": 60.0, "c": 60.1, "closed": 55.0}
HERE = {name: Numbers(own.fingerprint) for name, own in DATA.items()}  # as recorded
ELSEWHERE = {"even": Numbers("of another machine")}


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """Four systems; a's seeds lie far apart, the others' close together."""
    rng = np.random.default_rng(0)
    grid = jobs(range(10), tuple(LEVELS)[:3], ["even"]) + jobs([NO_SEED], ["closed"], ["even"])
    answers = []
    for job in grid:
        name = job.system["system"]
        level = LEVELS[name] + {"a": 3.0, "closed": 0.0}.get(name, 0.02) * rng.normal()
        values = np.append(rng.normal(size=5), np.nan)
        values += level - np.nanmean(values)
        history = [] if name == "closed" else [{"dev_loss": 1.0}]
        answers.append(Answer({"test": {"AUC": values}}, history))
    data = {name: own.fingerprint for name, own in DATA.items()}
    return Evidence(tidy(grid, answers, DATA), header(paper="tiny", tier="world", data=data))


def outside(live, evidence, data=HERE) -> list[bool]:
    return [not figure["within"] for figure in check_paired(live, evidence, data)["figures"]]


def mean(evidence, system, seed) -> float:
    return float(evidence.means("even", system, "AUC")[seed])


def test_every_swap_of_systems_that_differ_is_outside(evidence):
    for one, other in permutations(LEVELS, 2):
        for seed in evidence.seeds:
            own, others = mean(evidence, one, seed), mean(evidence, other, seed)
            for value in (own, others):
                wanted = abs(own - value) > ROUNDING
                assert outside({("even", one, seed, "AUC"): value}, evidence) == [wanted]


def other(evidence, part, name, value):
    head = json.loads(json.dumps(evidence.header))
    head[part][name] = value
    return Evidence(evidence.series, head)


@pytest.mark.parametrize(
    "change",
    [("machine", "arithmetic", "other"), ("machine", "arithmetic", None),
     ("versions", "torch", "other"), ("data", "even", "other"), ("machine", "gpu", "some")],
)  # fmt: skip
def test_elsewhere_each_systems_own_spread_counts(evidence, change):
    elsewhere = other(evidence, *change)
    for name in LEVELS:
        own = evidence.means("even", name, "AUC")
        width = max(ROUNDING, spread(own.to_numpy()))
        for off, far in ((0.99 * width, False), (1.01 * width, True)):
            for sign in (-1, 1):
                figure = {("even", name, 3, "AUC"): own[3] + sign * off}
                assert outside(figure, elsewhere) == [far]
                assert outside(figure, evidence) == [off > ROUNDING]
    assert spread(np.full(10, 55.0)) == 0


def test_with_several_threads_or_a_gpu_the_seeds_spread_counts(evidence, monkeypatch):
    figure = {("even", "a", 3, "AUC"): mean(evidence, "a", 3) + 2 * ROUNDING}
    assert outside(figure, evidence) == [True]
    with monkeypatch.context() as patch:
        patch.setattr(regression.torch, "get_num_threads", lambda: 2)
        assert outside(figure, evidence) == [False]
    gpu = other(evidence, "machine", "gpu", "some")
    monkeypatch.setattr(regression, "machine", lambda: gpu.header["machine"])
    assert [outside(figure, one) for one in (evidence, gpu)] == [[False], [False]]


def test_two_trainings_lie_apart_by_less_than_spread_in_999_of_1000():
    draws = np.random.default_rng(0).normal(size=(4000, 12))
    assert np.mean([abs(one[-1] - one[-2]) > spread(one[:10]) for one in draws]) < 0.004


def test_a_job_is_held_to_the_recording_that_has_it(evidence):
    """Also where two machines recorded other systems of one seed."""
    everywhere = {name: list(range(10)) for name in "abc"} | {"closed": [NO_SEED]}
    first = {**evidence.header, "jobs": {"even": {**everywhere, "a": [0, 1, 2, 4]}}}
    data = {"even": ELSEWHERE["even"].fingerprint}
    second = {**evidence.header, "data": data, "jobs": {"even": {"a": [3]}}}
    record = Evidence(evidence.series, evidence.header, [first, second])
    off = {(name, seed): {("even", name, seed, "AUC"): mean(evidence, name, seed) + 2 * ROUNDING}
           for name, seed in (("a", 2), ("a", 3), ("b", 3))}  # fmt: skip
    assert [outside(off[job], record) for job in off] == [[True], [False], [True]]
    there = [outside(off[job], record, ELSEWHERE) for job in (("a", 2), ("a", 3))]
    assert there == [[False], [True]]


def test_a_single_seed_from_elsewhere_has_no_spread_to_be_held_to(evidence):
    one = Evidence(evidence.series[evidence.series.seed <= 0], evidence.header)
    live = {("even", "a", 0, "AUC"): 1e6}
    assert outside(live, one) == [True]
    check = check_paired(live, one, ELSEWHERE)
    assert (check["comparable"], check["figures"]) == (False, [])
    assert "one seed of a on record" in check["why"]


def test_what_is_written_down_says_the_same_as_the_verdict(evidence, monkeypatch):
    monkeypatch.setattr(regression, "spread", lambda means: 0.44551)
    for far in np.linspace(0.4440, 0.4470, 31):
        value = mean(evidence, "b", 0) + far
        check = check_paired({("even", "b", 0, "AUC"): value}, evidence, {})
        [figure] = json.loads(json.dumps(check, allow_nan=False))["figures"]
        assert figure["within"] is (
            abs(figure["value"] - figure["expected"]) <= figure["tolerance"]
        )


def test_no_number_and_what_was_not_recorded_are_outside(evidence):
    own = evidence.means("even", "a", "AUC")
    live = {
        ("even", "a", 0, "AUC"): float("nan"), ("even", "a", 77, "AUC"): own[0],
        ("even", "z", 0, "AUC"): own[0], ("odd", "a", 0, "AUC"): own[0],
        ("even", "a", 0, "p@1"): own[0],
        ("even", "a", 1, "AUC"): own[1], ("even", "closed", 5, "AUC"): 55.0,
    }  # fmt: skip
    assert outside(live, evidence) == [True] * 5 + [False] * 2
    check = check_paired(live, evidence, HERE)
    assert json.loads(json.dumps(check, allow_nan=False)) == check
    assert check["figures"][0]["value"] is check["figures"][2]["expected"] is None
