"""The English spaCy pipeline that comes with the package."""

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE

if TYPE_CHECKING:
    from spacy.language import Language

# Trained by ci/train_parser.py; its meta.json has licence and scores.
ENGLISH = PACKAGE / "scenegraph" / "english"


@lru_cache
def load_english() -> "Language":
    """The bundled pipeline (CC BY-SA 4.0; UPOS, features and UD dependencies), once a process."""
    import spacy
    from thinc.api import use_ops

    try:
        # numpy's matrix products are up to three times as fast here as spaCy's default, BLIS.
        with use_ops("numpy", use_blis=False):
            return spacy.load(ENGLISH)
    except Exception as error:  # the folder may be damaged in any way
        raise DataError(f"{ENGLISH} is missing or damaged: install mmlib anew ({error})") from error


def pipeline_version(nlp: "Language") -> str:
    """Name, version and a hash of all weights, such as "en_captions-1.0.0-5e0c1f2a9b3d".

    Two pipelines that may parse differently have different ones: a key for caches.
    """
    content = hashlib.sha256()
    for name, pipe in nlp.pipeline:
        content.update(name.encode())
        if hasattr(pipe, "model"):
            content.update(pipe.model.to_bytes())
    meta = nlp.meta
    return f"{meta['lang']}_{meta['name']}-{meta['version']}-{content.hexdigest()[:12]}"
