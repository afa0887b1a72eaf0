"""Silver coherence relations: a classifier of Clue's captions labels those of Flickr8k.

Photographs whose captions have coherence relations are not at hand for everybody: Clue (Alikhani et
al., ACL 2020) gives captions and labels, its pictures have to be fetched from old addresses.
Flickr8k has photographs and captions but no relations. Here a classifier is trained on the text of
Clue, labelled by people, and labels the captions of Flickr8k.

What such labels can show: whether the coherence-aware model trains and runs on photographs, and
whether a second task on the text changes retrieval. What they cannot show: that the *relation of a
text to its image* helps, as the paper claims. The classifier has never seen an image, so that a
silver label is a function of its text alone: given the text, the image says nothing more about it.
The relation head can solve its task and ignore the image, its confidence η is then the same for
every image of a row, and refinement cannot reorder anything. What the image can tell by itself,
because captions of alike photographs are alike, is measured by `image_signal`. The labels are also
shifted: much of what the classifier has learned from Clue ("view", "illustration", "actor attends")
hardly occurs in Flickr8k, whose captions all describe what is seen: "not Visible" there means no
more than an unusual wording. Clue's Meta captions nearly all tell where, when or how
(95 % are marked so), and "a dog on the beach" becomes Meta too. Irrelevant is hardly learned:
on new captions it is not told from chance (`leak_table`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from mmlib.core.intervals import bootstrap_interval
from mmlib.core.paths import data_dir
from mmlib.core.records import normalised
from mmlib.core.related import RelatedPairs
from mmlib.core.tables import paper_values
from mmlib.data import clue, flickr8k

Rule = Literal["half", "f1", "rate", "drawn"]
Sharing = Literal["row", "image", "image or text"]
FOLDS = 5
CHOSEN = "words and letters, logistic regression"


# --- The classifier ---------------------------------------------------------------------------


def candidates() -> dict[str, Any]:
    """The classifiers that `compare` compares, untrained scikit-learn pipelines by name.

    All read lower-cased words without punctuation: 26 % of Clue's captions end in a full stop and
    nearly all of Flickr8k's do, which says nothing about a relation.
    """
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.svm import LinearSVC

    def logistic(strength: float = 1.0, **settings: Any) -> LogisticRegression:
        return LogisticRegression(C=strength, max_iter=1000, **settings)

    machine = CalibratedClassifierCV(LinearSVC(C=0.1), cv=3)
    return {
        "words, naive Bayes": _pipeline(MultinomialNB(alpha=0.3)),
        "words, logistic regression": _pipeline(logistic()),
        "words, logistic regression, balanced": _pipeline(logistic(class_weight="balanced")),
        "words, support vectors, calibrated": _pipeline(machine),
        "words and letters, logistic regression": _pipeline(logistic(), letters=True),
        "words and letters, support vectors, calibrated": _pipeline(machine, letters=True),
    }


def _pipeline(classifier: Any, letters: bool = False) -> Any:
    """Texts -> TF-IDF of words and pairs of words (with `letters`, of 2 to 4 letters too)."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.multioutput import MultiOutputClassifier
    from sklearn.pipeline import make_pipeline, make_union

    shared = {"preprocessor": normalised, "sublinear_tf": True}
    parts = [
        TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, 2), min_df=2, **shared),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), min_df=5, **shared),
    ]
    features = make_union(*parts) if letters else parts[0]
    return make_pipeline(features, MultiOutputClassifier(classifier))


def _check_learnable(pairs: RelatedPairs) -> None:
    for name, positive in zip(pairs.relations, pairs.labels.T, strict=True):
        if positive.all() or not positive.any():
            raise ValueError(
                f"{pairs.name} {pairs.split}: {name} is {'always' if positive.any() else 'never'} "
                f"positive in {len(pairs)} training pairs, so it cannot be learned"
            )


def _fit(candidate: str, pairs: RelatedPairs) -> Any:
    _check_learnable(pairs)  # also within folds, where a rare relation may be lost
    return candidates()[candidate].fit(pairs.texts, pairs.labels.astype(int))


def _predict(pipeline: Any, texts: Sequence[str]) -> np.ndarray:
    """(texts, relations) probabilities."""
    return np.stack([both[:, 1] for both in pipeline.predict_proba(texts)], axis=1)


@dataclass(frozen=True, eq=False)
class RelationClassifier:
    """Which coherence relations a text has, guessed from its words alone.

    relations: their names. pipeline: the trained scikit-learn pipeline.
    thresholds: rule -> (relations,) probabilities from which on a label is positive.
    """

    relations: tuple[str, ...]
    pipeline: Any
    thresholds: Mapping[str, np.ndarray]

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, relations) float64, each relation on its own."""
        if not len(texts):
            return np.empty((0, len(self.relations)))
        return _predict(self.pipeline, texts)

    def labels(self, texts: Sequence[str], rule: Rule = "rate", seed: int = 0) -> np.ndarray:
        """(texts, relations) bool by one of `to_labels`'s rules."""
        return to_labels(self.probabilities(texts), rule, self.thresholds, seed)


def to_labels(
    probabilities: np.ndarray, rule: Rule, thresholds: Mapping[str, np.ndarray], seed: int = 0
) -> np.ndarray:
    """Labels (texts, relations) bool from probabilities.

    half: 0.5 and above. f1, rate: at or above the threshold of that name, found on the training
    pairs (`train_classifier`). drawn: positive with its probability, from `seed`.
    """
    if rule == "drawn":
        return np.random.default_rng(seed).random(probabilities.shape) < probabilities
    if rule not in thresholds:
        raise ValueError(f"no rule {rule!r} (choose from {', '.join([*thresholds, 'drawn'])})")
    return probabilities >= thresholds[rule]


def train_classifier(
    train: RelatedPairs, seed: int = 0, candidate: str = CHOSEN
) -> RelationClassifier:
    """Train on pairs labelled by people, and find the thresholds by cross-validation on them.

    seed: of the folds. Thresholds, from the probabilities of held-out pairs: "f1" maximises F1,
    "rate" gives as many positives as people gave.

    Raises ValueError for a relation that is always or never positive.
    """
    _check_learnable(train)
    held = held_out(train, candidate, seed)
    thresholds = {
        "half": np.full(len(train.relations), 0.5),
        "f1": _each(best_f1, train.labels, held),
        "rate": _each(same_rate, train.labels, held),
    }
    return RelationClassifier(train.relations, _fit(candidate, train), thresholds)


def best_f1(labels: np.ndarray, scores: np.ndarray) -> float:
    """The smallest score from which on calling everything positive has the highest F1."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(labels, scores)
    f1 = 2 * precision * recall / np.maximum(precision + recall, 1e-12)
    return float(thresholds[f1[:-1].argmax()])


def same_rate(labels: np.ndarray, scores: np.ndarray) -> float:
    """The score from which on as many are called positive as are (ties may add some)."""
    return float(np.sort(scores)[len(scores) - int(labels.sum())])


def _each(metric: Callable, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    return np.array([metric(*columns) for columns in zip(labels.T, scores.T, strict=True)])


# --- Cross-validation without leaks -----------------------------------------------------------


def sharing_groups(pairs: RelatedPairs, sharing: Sharing = "image or text") -> np.ndarray:
    """(pairs,) group numbers; pairs that share something, also by way of others, are one group.

    A classifier of texts leaks by repeated texts, so that the image alone is too weak a group.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = np.arange(len(pairs))
    if sharing == "row":
        return rows
    images = np.unique(pairs.image_of, return_inverse=True)[1]
    if sharing == "image":
        return images
    texts = np.unique([normalised(text) for text in pairs.texts], return_inverse=True)[1]
    first_text = images.max(initial=-1) + 1
    count = first_text + texts.max(initial=-1) + 1
    edges = coo_array((np.ones(len(pairs)), (images, first_text + texts)), shape=(count, count))
    return connected_components(edges, directed=False)[1][images]


def folds(
    pairs: RelatedPairs, seed: int = 0, sharing: Sharing = "image or text"
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`FOLDS` times the rows to train on and the rows held out, no group on both sides."""
    from sklearn.model_selection import GroupKFold

    groups = np.unique(sharing_groups(pairs, sharing), return_inverse=True)[1]
    shuffled = np.random.default_rng(seed).permutation(groups.max(initial=0) + 1)[groups]
    yield from GroupKFold(FOLDS).split(groups, groups=shuffled)


def held_out(
    pairs: RelatedPairs,
    candidate: str = CHOSEN,
    seed: int = 0,
    sharing: Sharing = "image or text",
) -> np.ndarray:
    """(pairs, relations) probabilities, each by a classifier that has not seen the group."""
    probabilities = np.empty(pairs.labels.shape)
    for fit, held in folds(pairs, seed, sharing):
        pipeline = _fit(candidate, pairs.take(fit))
        probabilities[held] = _predict(pipeline, [pairs.texts[i] for i in held])
    return probabilities


def compare(train: RelatedPairs, seed: int = 0) -> pd.DataFrame:
    """The candidates by grouped cross-validation on the training pairs; a row a candidate.

    Columns: average precision of each relation and their mean, Brier score (mean squared error of
    the probabilities, over relations), features (of a classifier trained on all pairs).
    """
    rows = {}
    for name in candidates():
        held = held_out(train, name, seed)
        precisions = _each(_average_precision, train.labels, held)
        rows[name] = {
            **dict(zip(train.relations, precisions, strict=True)),
            "mean": precisions.mean(),
            "Brier": np.mean((train.labels - held) ** 2),
            "features": len(candidates()[name][0].fit(train.texts).get_feature_names_out()),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def leak_table(train: RelatedPairs, seed: int = 0) -> pd.DataFrame:
    """Average precision by cross-validation, by what training and held-out pairs may not share.

    A row a relation, a column a way to split: by rows, by images, by images and texts. Where the
    last column falls, the classifier had recognised captions, not relations: 89 of Clue's 6,047
    training captions are "digital art selected for the #", written by a captioning system for 76
    images, and 79 of these are Irrelevant.
    """
    ways: tuple[Sharing, ...] = ("row", "image", "image or text")
    columns = {
        f"no {way} shared": _each(
            _average_precision, train.labels, held_out(train, seed=seed, sharing=way)
        )
        for way in ways
    }
    table = pd.DataFrame(columns, index=list(train.relations))
    return table.assign(chance=train.labels.mean(0))


# --- How good it is ---------------------------------------------------------------------------


def _average_precision(labels: np.ndarray, scores: np.ndarray) -> float:
    from sklearn import config_context
    from sklearn.metrics import average_precision_score

    if not labels.any():
        return np.nan
    with config_context(assume_finite=True, skip_parameter_validation=True):  # thousands of draws
        return float(average_precision_score(labels, scores))


def _roc_area(labels: np.ndarray, scores: np.ndarray) -> float:
    """Chance that a positive is scored above a negative, equal ones counted half."""
    positives = int(labels.sum())
    others = positives * (len(labels) - positives)
    if not others:
        return np.nan
    # The statistic of Mann and Whitney, many times faster here than the curve.
    return float((rankdata(scores)[labels].sum() - positives * (positives + 1) / 2) / others)


def _interval(
    metric: Callable[[np.ndarray, np.ndarray], float],
    labels: np.ndarray,
    scores: np.ndarray,
    images: np.ndarray,
    draws: int,
    seed: int,
) -> tuple[float, float, float]:
    """A metric with its interval by bootstrap over images; NaN where the metric is."""
    if np.isnan(metric(labels, scores)):
        return np.nan, np.nan, np.nan
    estimate = bootstrap_interval(
        lambda rows: metric(labels[rows], scores[rows]), images, draws, seed
    )
    return estimate.effect, estimate.low, estimate.high


def average_precisions(
    classifier: RelationClassifier, pairs: RelatedPairs, draws: int = 500, seed: int = 0
) -> pd.DataFrame:
    """How well the relations of labelled pairs are predicted; a row a relation.

    Columns: AP (average precision), low, high (its 95 % interval by bootstrap over images), chance
    (the share of positives, which is the AP of guessing), ROC (area), ROC low, ROC high, positives.
    NaN for a relation that the pairs do not have. Source: paper, Table 8 (there from image and
    text, here from the text alone).
    """
    scores = classifier.probabilities(pairs.texts)
    rows = {}
    for c, name in enumerate(classifier.relations):
        truth, score = pairs.labels[:, c], scores[:, c]
        precision = _interval(_average_precision, truth, score, pairs.image_of, draws, seed)
        area = _interval(_roc_area, truth, score, pairs.image_of, draws, seed)
        rows[name] = [*precision, truth.mean(), *area, int(truth.sum())]
    columns = ["AP", "low", "high", "chance", "ROC", "ROC low", "ROC high", "positives"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def beside_table8(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The paper's Table 8 beside `average_precisions` on some sets of rows; a row a relation.

    tables: what the rows are -> their average precisions. The paper's columns: CMCM, and CMCM_c
    (the model of that relation alone).
    """
    paper = paper_values("coherence", "table8")
    relations = list(paper.columns)
    single = [paper.loc[f"CMCM_{name}", name] for name in relations]
    columns = {("paper", "CMCM"): paper.loc["CMCM"], ("paper", "CMCM_c"): single}
    for rows, table in tables.items():
        kept = table.reindex(relations)
        columns[rows, "text alone"] = [
            f"{ap:.2f} [{low:.2f}, {high:.2f}]"
            for ap, low, high in kept[["AP", "low", "high"]].to_numpy()
        ]
        columns[rows, "chance"] = kept["chance"].round(2)
    return pd.DataFrame(columns, index=relations)


def brier_scores(classifier: RelationClassifier, pairs: RelatedPairs) -> pd.DataFrame:
    """Mean squared error of the probabilities, and that of always saying these pairs' own rate."""
    rate = pairs.labels.mean(0)
    error = (classifier.probabilities(pairs.texts) - pairs.labels) ** 2
    columns = {"Brier": error.mean(0), "of the rate": rate * (1 - rate)}
    return pd.DataFrame(columns, index=list(classifier.relations))


def reliability(classifier: RelationClassifier, pairs: RelatedPairs, bins: int = 5) -> pd.DataFrame:
    """Are the probabilities right? For each relation, equally large bins of rising probability.

    Columns: relation, said (mean probability), seen (share of positives), pairs.
    """
    scores, rows = classifier.probabilities(pairs.texts), []
    for c, name in enumerate(classifier.relations):
        for part in np.array_split(np.argsort(scores[:, c], kind="stable"), bins):
            seen = pairs.labels[part, c].mean()
            rows.append((name, scores[part, c].mean(), seen, len(part)))
    return pd.DataFrame(rows, columns=["relation", "said", "seen", "pairs"])


def indicative_words(
    classifier: RelationClassifier, train: RelatedPairs, top: int = 8, least: int = 10
) -> pd.DataFrame:
    """The words that speak for each relation; rows relation and place, columns word, effect, texts.

    effect: how much the log odds of the relation fall, on average over the texts that have the
    word, when it is left out. Words of fewer than `least` texts are passed over.
    """
    holders: dict[str, list[int]] = {}
    split = [normalised(text).split() for text in train.texts]
    for i, words in enumerate(split):
        for word in dict.fromkeys(words):
            holders.setdefault(word, []).append(i)
    # Some texts of a word are enough for a mean.
    holders = {w: rows[:100] for w, rows in sorted(holders.items()) if len(rows) >= least}
    cut = [" ".join(w for w in split[i] if w != word) for word in holders for i in holders[word]]
    whole = _log_odds(classifier.probabilities(train.texts))
    fall = whole[[i for rows in holders.values() for i in rows]]
    fall = fall - _log_odds(classifier.probabilities(cut))
    sizes = np.array([len(rows) for rows in holders.values()])
    effects = np.add.reduceat(fall, np.r_[0, sizes.cumsum()[:-1]]) / sizes[:, None]
    rows, words = [], list(holders)
    for c, name in enumerate(classifier.relations):
        for place, w in enumerate(np.argsort(-effects[:, c], kind="stable")[:top], start=1):
            rows.append((name, place, words[w], effects[w, c], int(sizes[w])))
    columns = ["relation", "place", "word", "effect", "texts"]
    return pd.DataFrame(rows, columns=columns).set_index(["relation", "place"])


def _log_odds(probabilities: np.ndarray) -> np.ndarray:
    clipped = np.clip(probabilities, 1e-9, 1 - 1e-9)
    return np.log(clipped / (1 - clipped))


# --- Flickr8k ---------------------------------------------------------------------------------


def clue_classifier(seed: int = 0, folder: Path | None = None) -> RelationClassifier:
    """The classifier trained on Clue's training captions (seconds; once a process).

    folder: Clue's folder; by default `clue` in the data folder.
    """
    return _clue_classifier(data_dir() / clue.NAME if folder is None else folder, seed)


@lru_cache(maxsize=4)
def _clue_classifier(folder: Path, seed: int) -> RelationClassifier:
    return train_classifier(clue.load("train", folder), seed)


def silver_pairs(
    split: str,
    seed: int = 0,
    captions: Literal["first", "all"] = "first",
    rule: Rule = "rate",
    relations: Sequence[str] | None = None,
    classifier: RelationClassifier | None = None,
    folder: Path | None = None,
) -> RelatedPairs:
    """Flickr8k's captions with silver relations (see the module's text for what they are worth).

    split: "train", "val" or "test". captions: the first of each image, or all five, one pair each.
    rule: how probabilities become labels. "rate" is the default, since 0.5 leaves Subjective and
    Irrelevant without positives, "f1" calls nearly every caption Visible, and labels that are drawn
    hold next to nothing that an image could tell (`image_signal`). relations: the ones to keep, by
    default all that the classifier knows. classifier: by default Clue's.
    seed: of the folds in which its thresholds are found, and of labels that are drawn. folder:
    Flickr8k's.

    Raises DataError for missing or damaged files of either data set, ValueError for unknown names.
    """
    if captions not in ("first", "all"):
        raise ValueError(f"no captions {captions!r} (choose from first, all)")
    classifier = classifier or clue_classifier(seed)
    relations = tuple(classifier.relations if relations is None else relations)
    if unknown := set(relations) - set(classifier.relations):
        known = ", ".join(classifier.relations)
        raise ValueError(f"no relation {min(unknown)!r} (choose from {known})")
    data = flickr8k.load(split, folder)
    kept = [own if captions == "all" else own[:1] for own in data.captions]
    texts = tuple(text for own in kept for text in own)
    # The splits must not draw alike.
    draw = np.random.SeedSequence([seed, *split.encode()]).generate_state(1)[0]
    labels = classifier.labels(texts, rule, int(draw))
    return RelatedPairs(
        name=data.name,
        split=split,
        texts=texts,
        labels=labels[:, [classifier.relations.index(name) for name in relations]],
        relations=relations,
        image_of=np.repeat(np.arange(len(kept)), [len(own) for own in kept]),
        image_ids=data.ids,
        features=data.features,
        open_image=data.open_image,
    )


def usable(labels: np.ndarray, least: float = 0.01) -> np.ndarray:
    """(relations,) bool: neither positives nor negatives are fewer than `least` of the pairs.

    A model of one relation cannot be trained where the labels (pairs, relations) are constant.
    """
    rate = labels.mean(0)
    return (rate >= least) & (rate <= 1 - least) & (rate > 0) & (rate < 1)


def rates(
    classifier: RelationClassifier, train: RelatedPairs, texts: Sequence[str], seed: int = 0
) -> pd.DataFrame:
    """Share of positives under each rule; a row a relation.

    Columns: training pairs (labelled by people), mean probability of the texts, then the rules.
    """
    scores = classifier.probabilities(texts)
    rules: tuple[Rule, ...] = ("half", "f1", "rate", "drawn")
    columns = {rule: to_labels(scores, rule, classifier.thresholds, seed).mean(0) for rule in rules}
    first = {"training pairs": train.labels.mean(0), "mean probability": scores.mean(0)}
    return pd.DataFrame(first | columns, index=list(classifier.relations))


def likeliest(classifier: RelationClassifier, texts: Sequence[str], top: int = 5) -> pd.DataFrame:
    """The texts with the highest probability of each relation: relation, probability, text."""
    texts = list(dict.fromkeys(texts))
    scores = classifier.probabilities(texts)
    rows = [
        (name, scores[i, c], texts[i])
        for c, name in enumerate(classifier.relations)
        for i in np.argsort(-scores[:, c], kind="stable")[:top]
    ]
    return pd.DataFrame(rows, columns=["relation", "probability", "text"])


def examples(
    pairs: RelatedPairs, relation: str, positive: bool = True, count: int = 20, seed: int = 0
) -> np.ndarray:
    """Rows of up to `count` random pairs that have a relation (or have it not), to judge by eye."""
    is_so = pairs.labels[:, pairs.relations.index(relation)] == positive
    return np.random.default_rng(seed).permutation(np.flatnonzero(is_so))[:count]


def known_words(train: RelatedPairs, texts: Sequence[str]) -> float:
    """Share of the words of some texts, as they run, that the training texts have."""
    known = {word for text in train.texts for word in normalised(text).split()}
    running = [word for text in texts for word in normalised(text).split()]
    return float(np.mean([word in known for word in running]))


def image_signal(
    train: RelatedPairs, held: RelatedPairs, draws: int = 500, seed: int = 0
) -> pd.DataFrame:
    """What the image tells about each label by itself; a row a relation.

    A logistic regression of the label from the image's features (mean over regions, standardised),
    trained on `train` and measured on `held`. Columns: rate (positives in train), ROC (area; 0.5
    where the image tells nothing), low, high (95 % interval by bootstrap over images). NaN for
    relations that are not `usable` in train.

    Raises ValueError where there are no features.
    """
    if train.features is None or held.features is None:
        raise ValueError(f"{train.name} has no image features")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    inputs = train.features.mean(axis=1)[train.image_of]
    held_inputs = held.features.mean(axis=1)[held.image_of]
    good, rows = usable(train.labels), {}
    for c, name in enumerate(train.relations):
        area = (np.nan, np.nan, np.nan)
        if good[c]:
            probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
            scores = probe.fit(inputs, train.labels[:, c]).decision_function(held_inputs)
            area = _interval(_roc_area, held.labels[:, c], scores, held.image_of, draws, seed)
        rows[name] = [train.labels[:, c].mean(), *area]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["rate", "ROC", "low", "high"])
