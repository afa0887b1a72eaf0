"""Train the small judge of the picture world that ships, and keep it: about a minute of a core.

    python ci/small_judge.py

Writes mmlib/world/judge.safetensors for `mmlib score small pairs.csv`. It is the first of the
recorded judges (paper 02, tier world, "Full", seed 0); nothing is chosen.
"""

from mmlib.papers.entailment import data, judge
from mmlib.papers.entailment.grid import job as job_of
from mmlib.papers.entailment.metrics import METRICS, figure
from mmlib.papers.entailment.systems import budget as budget_of
from mmlib.papers.entailment.systems import full
from mmlib.suite import score

CARD = """An entailment classifier of mmlib's picture world (notebook 02). It says whether
a caption is true of a picture drawn by mmlib.world, given other captions of it if there are any.
Trained on {train} pairs about scenes of the world's split "train"; calibrated on {calibration}
candidates of which {prior:.1%} are true. On candidates of test pictures: {figures}. It knows the
{words} words of that world and nothing of photographs. Pictures of another size are scaled to
128 x 128."""


def main() -> None:
    budget = budget_of("world", "world")
    arrays = data.load_arrays(data.load_study("world"), "world")["world"]
    job = job_of("world", "world", full("world"), 0)
    model = judge.trained(job, arrays)
    miner, asked = judge.Miner.of(job, arrays), arrays.tests["candidates"]
    deep = judge.scores(model, arrays.encoded(asked, model.settings), arrays.images)["mm"]
    margin = miner.calibration.margin(deep, asked.given)
    label = asked.samples.label
    told = ", ".join(f"{m} {figure(m, label, margin, asked.weights):.1f}" for m in METRICS[:3])
    own = arrays.calibration.samples.label
    card = CARD.format(
        train=len(judge.training_rows(arrays.train, full("world"))),
        calibration=len(own), prior=own.mean(), figures=told, words=len(arrays.words.words),
    )  # fmt: skip
    plan, card = budget.retrieval, card.replace("\n", " ")
    score.keep(score.SMALL, arrays, plan.transformers, arrays.retriever, model, card, plan.space)
    score.SMALL.chmod(0o644)
    print(card, score.SMALL.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
