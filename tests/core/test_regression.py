"""The check of a run's figures sees one system in another's place."""

import json
from itertools import permutations

import numpy as np
import pytest
from tiny_jobs import DATA, Numbers, jobs

from mmlib.core import recordings, regression
from mmlib.core.engine import tidy
from mmlib.core.evidence import Evidence, header
from mmlib.core.jobs import NO_SEED, Answer
from mmlib.core.paths import evidence_dir
from mmlib.core.regression import ROUNDING, check_paired, noise, spread

LEVELS = {"a": 50.0, "b": 60.0, "c": 60.1, "closed": 55.0}
RECORDED = evidence_dir() / "world" / "links"


def made_up() -> Evidence:
    """Four systems; a's seeds lie far apart, the others' close together."""
    rng = np.random.default_rng(0)
    grid = jobs(range(10), tuple(LEVELS)[:3], ["even"]) + jobs([NO_SEED], ["closed"], ["even"])
    answers = []
    for job in grid:
        name = job.system["system"]
        level = LEVELS[name] + {"a": 3.0, "closed": 0.0}.get(name, 0.02) * rng.normal()
        values = np.append(level + rng.normal(size=5) - 0, np.nan)
        values[:5] += level - np.nanmean(values)
        history = [] if name == "closed" else [{"dev_loss": 1.0}]
        answers.append(Answer({"test": {"AUC": values}}, history))
    data = {name: own.fingerprint for name, own in DATA.items()}
    return Evidence(tidy(grid, answers, DATA), header(paper="tiny", tier="world", data=data))


def recorded_data(evidence) -> dict:
    """Data sets with the fingerprints on record."""
    return {name: Numbers(own) for name, own in evidence.header["data"].items()}


def red(live, evidence, data=None) -> list[bool]:
    data = recorded_data(evidence) if data is None else data
    return [not figure["within"] for figure in check_paired(live, evidence, data)["figures"]]


def means(evidence, dataset, system, metric="AUC") -> dict[int, float]:
    values = np.nanmean(evidence.values(dataset, system, metric), axis=1)
    return dict(zip(evidence.seeds, values, strict=True))


def swaps(evidence, datasets):
    """(figure to check, its own value, another system's value of the same seed)."""
    for dataset in datasets:
        names = [s for s in evidence.systems(dataset) if evidence.has(dataset, s, "AUC")]
        own = {name: means(evidence, dataset, name) for name in names}
        for one, other in permutations(names, 2):
            for seed in evidence.seeds:
                yield (dataset, one, seed, "AUC"), own[one][seed], own[other][seed]


def check_swaps(evidence, datasets):
    every = list(swaps(evidence, datasets))
    assert not any(red({figure: own for figure, own, _ in every}, evidence))
    # The last figure of a pair counts, so each pair of systems is checked by itself.
    found = [
        red({figure: other}, evidence)[0]
        for figure, _, other in every[:: max(1, len(every) // 2000)]
    ]
    wanted = [abs(own - other) > ROUNDING for _, own, other in every[:: max(1, len(every) // 2000)]]
    assert found == wanted
    assert any(found)


def test_every_swap_of_systems_that_differ_turns_the_check_red():
    check_swaps(made_up(), ["even"])


@pytest.mark.skipif(not RECORDED.is_dir(), reason="no evidence of the world is recorded")
def test_every_swap_in_the_record_turns_the_check_red(monkeypatch):
    found = recordings.read(RECORDED)
    first = found.recordings[0]
    here = {**first["machine"], "arithmetic": "one"}
    evidence = Evidence(found.series, {**found.header, **first, "machine": here})
    monkeypatch.setattr(regression, "machine", lambda: here)
    monkeypatch.setattr(regression.torch, "__version__", first["versions"]["torch"])
    check_swaps(evidence, [name for name in evidence.datasets if name != "unlabelled"])


@pytest.mark.parametrize("what", ["arithmetic", "untold", "torch", "features"])
def test_elsewhere_each_systems_own_spread_counts(what):
    evidence = made_up()
    head = json.loads(json.dumps(evidence.header))
    if what == "features":  # the same arithmetic, but other features of the same pictures
        head["data"]["even"] = "other"
    elif what == "untold":  # as in older records
        del head["machine"]["arithmetic"]
    else:
        head["versions" if what == "torch" else "machine"][what] = "other"
    elsewhere, data = Evidence(evidence.series, head), recorded_data(evidence)
    for name in LEVELS:
        own = np.array(list(means(evidence, "even", name).values()))
        width = max(ROUNDING, spread(own))
        for off, outside in ((0.99 * width, False), (1.01 * width, True)):
            for sign in (-1, 1):
                figure = {("even", name, 3, "AUC"): own[3] + sign * off}
                assert red(figure, elsewhere, data) == [outside]
                assert red(figure, evidence) == [off > ROUNDING]
    assert spread(np.full(10, 55.0)) == 0
    assert spread(np.array(list(means(evidence, "even", "a").values()))) > 10
    assert spread(np.array(list(means(evidence, "even", "b").values()))) < ROUNDING


def test_elsewhere_trainings_made_again_count_before_the_spread_of_seeds():
    evidence, again = made_up(), [0.4, -0.3, 0.1, 0.2]
    there = {"even": Numbers("of another machine")}
    assert noise(again) == pytest.approx(0.27386 * 8.6103, rel=1e-4)  # root mean square, t of 4
    for system, seed in (("a", 3), ("b", 0)):
        own = means(evidence, "even", system)[seed]
        for off, outside in ((0.99 * noise(again), False), (1.01 * noise(again), True)):
            live = {("even", system, seed, "AUC"): own + off}
            told = check_paired(live, evidence, there, again)["figures"][0]
            assert told["within"] is not outside
            assert told["tolerance"] == round(noise(again), 3)
    far = {("even", "a", 3, "AUC"): means(evidence, "even", "a")[3] + 1.01 * noise(again)}
    assert check_paired(far, evidence, there, again[:2])["figures"][0]["within"]  # too few of them
    here = check_paired(far, evidence, recorded_data(evidence), again)["figures"][0]
    assert here["tolerance"] == ROUNDING


def test_two_trainings_of_a_seed_lie_apart_by_less_than_the_noise_in_999_of_1000():
    draws = np.random.default_rng(0).normal(size=(4000, 7))
    assert np.mean([abs(one[-1]) > noise(one[:6]) for one in draws]) < 0.004


def test_a_job_is_held_to_the_recording_that_has_it():
    """Also where two machines recorded other systems of one seed."""
    evidence = made_up()
    data = {"even": "of another machine"}
    everywhere = {name: list(range(10)) for name in "abc"} | {"closed": [NO_SEED]}
    first = {**evidence.header, "jobs": {"even": {**everywhere, "a": [0, 1, 2, 4]}}}
    second = {**evidence.header, "data": data, "jobs": {"even": {"a": [3]}}}
    record = Evidence(evidence.series, evidence.header, [first, second])
    off = {(name, seed): {("even", name, seed, "AUC"): own + 2 * ROUNDING}
           for name, seed in (("a", 2), ("a", 3), ("b", 3))
           for own in [means(evidence, "even", name)[seed]]}  # fmt: skip
    here, there = recorded_data(evidence), {"even": Numbers("of another machine")}
    assert [red(off[job], record, here) for job in off] == [[True], [False], [True]]
    assert [red(off[job], record, there)[0] for job in (("a", 2), ("a", 3))] == [False, True]


def test_what_a_gpu_may_have_trained_is_held_to_the_seeds_spread(monkeypatch):
    evidence = made_up()
    figure = {("even", "a", 3, "AUC"): means(evidence, "even", "a")[3] + 2 * ROUNDING}
    head = {**evidence.header, "machine": {**evidence.header["machine"], "gpu": "some"}}
    there = Evidence(evidence.series, head)
    assert [red(figure, one) for one in (evidence, there)] == [[True], [False]]
    monkeypatch.setattr(regression, "machine", lambda: head["machine"])
    assert [red(figure, one) for one in (evidence, there)] == [[False], [False]]


def test_a_single_seed_from_elsewhere_has_no_spread_to_be_held_to():
    evidence = made_up()
    one = Evidence(evidence.series[evidence.series.seed <= 0], evidence.header)
    live = {("even", "a", 0, "AUC"): 1e6}
    assert check_paired(live, one, recorded_data(evidence))["figures"][0]["within"] is False
    told = check_paired(live, one, {"even": Numbers("other")})
    assert (told["comparable"], told["figures"]) == (False, [])
    assert "one seed of a on record" in told["why"]


def test_with_several_threads_the_seeds_spread_counts(monkeypatch):
    evidence = made_up()
    figure = {("even", "a", 3, "AUC"): means(evidence, "even", "a")[3] + 2 * ROUNDING}
    assert red(figure, evidence) == [True]
    monkeypatch.setattr(regression.torch, "get_num_threads", lambda: 2)
    assert red(figure, evidence) == [False]


def test_two_trainings_lie_apart_by_less_than_the_spread_in_999_of_1000():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 12))
    outside = [abs(one[-1] - one[-2]) > spread(one[:10]) for one in draws]
    assert np.mean(outside) < 0.004


def test_what_is_written_down_says_the_same_as_the_verdict(monkeypatch):
    evidence = made_up()
    monkeypatch.setattr(regression, "spread", lambda means: 0.44551)
    for far in np.linspace(0.4440, 0.4470, 31):
        value = float(means(evidence, "even", "b")[0] + far)
        told = check_paired({("even", "b", 0, "AUC"): value}, evidence, {})["figures"][0]
        assert told["within"] is (abs(told["value"] - told["expected"]) <= told["tolerance"])


def test_no_number_and_what_was_not_recorded_are_outside():
    evidence = made_up()
    own = means(evidence, "even", "a")
    live = {
        ("even", "a", 0, "AUC"): float("nan"),
        ("even", "a", 77, "AUC"): own[0],
        ("even", "z", 0, "AUC"): own[0],
        ("odd", "a", 0, "AUC"): own[0],
        ("even", "a", 0, "p@1"): own[0],
        ("even", "a", 1, "AUC"): own[1],
        ("even", "closed", 5, "AUC"): 55.0,
    }
    assert red(live, evidence) == [True] * 5 + [False] * 2
    told = check_paired(live, evidence, recorded_data(evidence))
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["figures"][0]["value"] is None
    assert told["figures"][2]["expected"] is None
    some = evidence.series[(evidence.series.system != "a") | (evidence.series.seed < 2)]
    partial = Evidence(some, evidence.header)
    assert red({("even", "a", 5, "AUC"): own[5]}, partial) == [True]
