"""English spaCy pipelines: the one that comes with the package, or one of the user's own."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from mmlib.core.errors import DataError
from mmlib.core.paths import PACKAGE

if TYPE_CHECKING:
    from spacy.language import Language

ENGLISH = (
    PACKAGE / "scenegraph" / "english"
)  # trained by ci/train_parser.py; its meta.json has licence and scores


def load_english(name: str | Path | None = None) -> "Language":
    """A spaCy pipeline with a dependency parser.

    name: None for the bundled one (CC BY-SA 4.0; UPOS, features and UD dependencies), else a
    folder that spaCy saved, or the name of an installed package such as `en_core_web_sm`.

    Raises DataError, with the mend, where there is none of that name or it does not parse.
    """
    import spacy
    from thinc.api import use_ops

    source = ENGLISH if name is None else name
    try:
        # numpy's matrix products are up to three times as fast here as spaCy's default, BLIS.
        with use_ops("numpy", use_blis=False):
            nlp = spacy.load(source)
    except Exception as error:  # a package may be absent, a folder damaged in any way
        if name is None:
            mend = "install mmlib anew: its folder english/ is missing or damaged"
        elif Path(name).exists():
            mend = "name a folder that spaCy's to_disk wrote, whole"
        else:
            mend = (
                f"check the path, or install the package: python -m spacy download {name}; "
                "name=None takes the bundled one"
            )
        what = " ".join(str(error).split())[:200]
        raise DataError(
            f"no spaCy pipeline can be loaded from {source}: {what} ({mend})"
        ) from error
    if not any("token.dep" in nlp.get_pipe_meta(pipe).assigns for pipe in nlp.pipe_names):
        raise DataError(
            f"the spaCy pipeline {source} has no dependency parser (its parts: "
            f"{', '.join(nlp.pipe_names) or 'none'}; take en_core_web_sm or the bundled one)"
        )
    return nlp


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
