"""What is recorded is small, and what notebook 04 says of it is so."""

from mmlib.core.paths import evidence_dir
from mmlib.papers.links import show
from mmlib.suite.record import assess_paper, read


def test_the_record_is_small_enough_for_a_repository():
    size = sum(path.stat().st_size for path in evidence_dir().rglob("*") if path.is_file())
    assert size <= 32e6


def test_the_text_says_what_its_evidence_holds():
    world, photographs = (show.mean_aucs(read("04", tier)) for tier in ("world", "flickr8k"))
    of_world = {one.claim.id: one.record() for one in assess_paper("04", "world")}
    without = [table.drop(index=show.SEES_LINKS) for table in (world, photographs)]
    first, second = (table.idxmax() == "AP" for table in without)
    assert first.index[~first].tolist() == ["coco"]  # "the highest mean in the world on all but"
    assert (second.sum(), len(second)) == (3, 5)  # "on photographs … on three of five"
    assert round(of_world["C4"]["parts"]["story, AP"]["effect"]) == -14  # "costs AP 14 points"
    of_seeds = read("04", "world").means("story", "AP", "AUC")
    assert of_seeds[0] <= of_seeds.quantile(0.1)  # "this seed is among AP's lowest"
    lead = (world.loc["AP"] - world.loc["NoStruct"])[["story", "cohesive"]]
    assert lead["story"] > 20 > 5 > lead["cohesive"] > 0  # "far ahead …, and little ahead on"
