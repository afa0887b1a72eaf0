"""What is recorded is small, and what notebook 04 says of it is so."""

import nbformat
from scripts import ROOT

from mmlib.core.paths import evidence_dir
from mmlib.papers.links import show
from mmlib.suite.record import assess_paper, read

CELLS = nbformat.read(ROOT / "notebooks" / "04_document_links.ipynb", as_version=4).cells
TEXT = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")


def test_the_record_is_small_enough_for_a_repository():
    size = sum(path.stat().st_size for path in evidence_dir().rglob("*") if path.is_file())
    assert size <= 31e6


def test_the_text_says_what_its_evidence_holds():
    world, photographs = (show.mean_aucs(read("04", tier)) for tier in ("world", "flickr8k"))
    of_world = {one.claim.id: one.record() for one in assess_paper("04", "world")}
    without = [table.drop(index=show.SEES_LINKS) for table in (world, photographs)]
    first, second = (table.idxmax() == "AP" for table in without)
    assert "AP has the highest mean in the world on all but *coco*" in TEXT
    assert first.index[~first].tolist() == ["coco"]
    assert "On photographs it has it on three of five" in TEXT
    assert (second.sum(), len(second)) == (3, 5)
    assert "It costs AP 14 points on stories" in TEXT
    assert round(of_world["C4"]["parts"]["story, AP"]["effect"]) == -14
    of_seeds = read("04", "world").means("story", "AP", "AUC")
    assert "This seed is among AP's lowest" in TEXT
    assert of_seeds[0] <= of_seeds.quantile(0.1)
    lead = (world.loc["AP"] - world.loc["NoStruct"])[["story", "cohesive"]]
    assert "far ahead of NoStruct on *story* and little ahead on *cohesive*" in TEXT
    assert lead["story"] > 20 > 5 > lead["cohesive"] > 0
