"""The claims of notebook 00: `claims.yaml`, and the effects that no weighted sum gives."""

import numpy as np

from mmlib.core.contrast import Effects, Vocabulary, claims_of
from mmlib.core.effects import crossed, difference
from mmlib.core.evidence import Evidence
from mmlib.papers.start.data import PLACES
from mmlib.papers.start.run import CAPTIONS

SHORT, LONG = 8, 14  # words and marks: at most, at least


def short(evidence: Evidence) -> Effects:
    """R@10 of a picture's short captions less that of its long ones."""
    [dataset] = evidence.datasets
    values, image_of = evidence.values(dataset, "Search", "R@10"), evidence.clusters(dataset)
    [words] = evidence.values(dataset, CAPTIONS, "words", [0])
    gaps = []
    for picture in np.unique(image_of):
        brief, long = ((image_of == picture) & fits for fits in (words <= SHORT, words >= LONG))
        if brief.any() and long.any():
            gaps.append(values[:, brief].mean(axis=1) - values[:, long].mean(axis=1))
    return {"short − long": crossed(np.transpose(gaps), range(len(gaps)))}


def places(evidence: Evidence) -> Effects:
    """R@10 of the captions of beaches less that of deserts', which are other pictures."""
    found, pictures = evidence.values("world", "Search", "R@10"), evidence.clusters("world")
    of = [evidence.values("world", CAPTIONS, setting, [0])[0] == 1 for setting in PLACES]
    return {"beach − desert": difference(*(crossed(found[:, fits], pictures[fits]) for fits in of))}


CLAIMS = claims_of(__file__, Vocabulary(), {"S2": short, "S3": places})
