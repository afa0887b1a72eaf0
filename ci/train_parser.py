"""Train the bundled English pipeline from UD English EWT and a caption grammar: half an hour.

    python ci/train_parser.py --out DIR [--max-minutes 120]

Reads ud_english_ewt/*.conllu, plain or .gz, in MMLIB_DATA: train to learn from, dev to choose
the best pass, test once at the end. Captions with trees come from ci/caption_trees.py, new ones
every pass. DIR is written at the end, whole or not at all; with Ctrl-C the best pass so far is.
"""

import argparse
import gzip
import os
import platform
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import spacy
from caption_trees import Grammar, Lexicon, Row
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.training.batchers import minibatch_by_words
from spacy.util import fix_random_seed
from srsly import write_json
from thinc.api import use_ops
from tqdm import tqdm

from mmlib.core.paths import data_dir, table_beside

WIDTH = 96
ROWS = {"NORM": 6500, "PREFIX": 1000, "SUFFIX": 2500, "SHAPE": 1000}  # of the embedding tables
CAPTIONS = 4000  # a pass
ALTERED, FRAGMENTS, JOINED = 0.15, 0.10, 0.06  # shares of EWT's sentences
WARM_UP = 200  # steps
META: dict[str, Any] = table_beside(__file__)

# --- Trees -----------------------------------------------------------------------------------


def read_conllu(path: Path) -> list[list[list[str]]]:
    """The sentences of a CoNLL-U file as rows of columns, without ranges and empty nodes.

    path: of the plain one; beside it the same with .gz at its end, which is taken first.
    """
    sentences: list[list[list[str]]] = []
    packed = path.with_name(f"{path.name}.gz")
    with (
        gzip.open(packed, "rt", encoding="utf-8-sig")
        if packed.is_file()
        else path.open(encoding="utf-8-sig") as file
    ):
        for block in file.read().split("\n\n"):
            lines = [line.split("\t") for line in block.split("\n") if line[:1].isdigit()]
            if lines:
                sentences.append([columns for columns in lines if columns[0].isdigit()])
    return sentences


def rows_of(sentence: Sequence[Sequence[str]]) -> list[Row]:
    rows = []
    for i, (_, word, _, pos, _, feats, head, dep, _, note) in enumerate(sentence):
        at = i if head == "0" else int(head) - 1
        rows.append((word, "SpaceAfter=No" not in note, pos, feats.strip("_"), at, dep))
    return rows


def part(rows: Sequence[Row], keep: Sequence[int]) -> list[Row]:
    """Some rows of a tree, renumbered; a word whose head is left out becomes a root."""
    at = {old: new for new, old in enumerate(keep)}
    return [(*rows[i][:4], at.get(rows[i][4], at[i]), rows[i][5]) for i in keep]


def altered(rows: list[Row], rng: np.random.Generator) -> list[Row]:
    """Lower-cased, or without its last stop, or both."""
    kind = rng.random()
    if kind < 0.75:
        rows = [(row[0].lower(), *row[1:]) for row in rows]
    last = len(rows) - 1
    bare = rows[last][0] == "." and all(row[4] != last for row in rows)
    if kind > 0.35 and bare and last:
        rows = part(rows, range(last))
    return rows


def fragment(rows: Sequence[Row], rng: np.random.Generator) -> list[Row]:
    """A noun phrase of a sentence as a text of its own, or [] where there is none."""
    nouns = [i for i, row in enumerate(rows) if row[2] == "NOUN" and row[4] != i]
    if not nouns:
        return []
    top = nouns[int(rng.integers(len(nouns)))]
    inside = {top}
    for _ in rows:
        more = {i for i, row in enumerate(rows) if row[4] in inside} - inside
        if not more:
            break
        inside |= more
    drop = {
        i for i in inside if rows[i][4] == top and rows[i][5] in ("case", "mark", "cc", "punct")
    }
    keep = sorted(inside - drop)
    if len(keep) < 3 or len(keep) != keep[-1] - keep[0] + 1:
        return []
    cut = part(rows, keep)
    return cut if sum(row[4] == i for i, row in enumerate(cut)) == 1 else []


def joined(first: Sequence[Row], second: Sequence[Row]) -> list[Row]:
    """Two sentences as one text, so that the parser learns to part them."""
    moved = [(*row[:4], row[4] + len(first), row[5]) for row in second]
    return [*first, *moved]


def one_pass(
    sentences: Sequence[list[Row]], grammar: Grammar, rng: np.random.Generator
) -> list[list[Row]]:
    """What is learnt from in one pass, shuffled: all of EWT, parts of it, new captions."""
    texts: list[list[Row]] = []
    for rows in sentences:
        chosen = altered(rows, rng) if rng.random() < ALTERED else rows
        if texts and rng.random() < JOINED:
            texts[-1] = joined(texts[-1], chosen)
        else:
            texts.append(chosen)
    for rows in sentences:
        if rng.random() < FRAGMENTS and (cut := fragment(rows, rng)):
            texts.append(altered(cut, rng))
    captions = [grammar.caption() for _ in range(CAPTIONS)]
    for rows in captions:
        if texts and rng.random() < 0.03:
            texts.append(joined(captions[int(rng.integers(CAPTIONS))], rows))
        else:
            texts.append(rows)
    return [texts[i] for i in rng.permutation(len(texts))]


def example(nlp: Language, rows: Sequence[Row]) -> Example:
    words, spaces, pos, morphs, heads, deps = (list(column) for column in zip(*rows, strict=True))
    deps = ["ROOT" if head == i else dep for i, (head, dep) in enumerate(zip(heads, deps))]  # noqa: B905
    gold = Doc(
        nlp.vocab, words=words, spaces=spaces, pos=pos, morphs=morphs, heads=heads, deps=deps
    )
    return Example(Doc(nlp.vocab, words=words, spaces=spaces), gold)


# --- Model -----------------------------------------------------------------------------------


def build() -> Language:
    """An untrained pipeline: one small CNN that the morphologizer and the parser share."""
    embed = {
        "@architectures": "spacy.MultiHashEmbed.v2", "width": WIDTH, "attrs": list(ROWS),
        "rows": list(ROWS.values()), "include_static_vectors": False,
    }  # fmt: skip
    encode = {
        "@architectures": "spacy.MaxoutWindowEncoder.v2", "width": WIDTH, "depth": 4,
        "window_size": 1, "maxout_pieces": 3,
    }  # fmt: skip
    tok2vec = {"@architectures": "spacy.Tok2Vec.v2", "embed": embed, "encode": encode}
    shared = {"@architectures": "spacy.Tok2VecListener.v1", "width": WIDTH, "upstream": "*"}
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": shared, "nO": None}
    parser = {
        "@architectures": "spacy.TransitionBasedParser.v2", "state_type": "parser",
        "extra_state_tokens": False, "hidden_width": 128, "maxout_pieces": 2, "use_upper": True,
        "nO": None, "tok2vec": shared,
    }  # fmt: skip
    nlp = spacy.blank("en")
    nlp.add_pipe("tok2vec", config={"model": tok2vec})
    nlp.add_pipe("morphologizer", config={"model": tagger | {"normalize": False}})
    nlp.add_pipe("parser", config={"model": parser})
    return nlp


def scores(nlp: Language, texts: Sequence[list[Row]]) -> dict[str, float]:
    """UPOS, UAS, LAS in per cent, each sentence alone with gold tokens.

    All tokens count, punctuation too; LAS compares whole labels, subtypes too. Without
    punctuation: `UAS_words`, `LAS_words`.
    """
    counts = np.zeros(7)
    docs = (
        Doc(nlp.vocab, words=[r[0] for r in rows], spaces=[r[1] for r in rows]) for rows in texts
    )
    for doc, rows in zip(nlp.pipe(docs, batch_size=256), texts, strict=True):
        for token, (_, _, pos, _, head, dep) in zip(doc, rows, strict=True):
            right_head = token.head.i == head
            right = right_head and token.dep_ == ("ROOT" if head == token.i else dep)
            word = dep != "punct"
            counts += (1, token.pos_ == pos, right_head, right, word,
                       word and right_head, word and right)  # fmt: skip
    n, upos, uas, las, words, uas_words, las_words = counts
    found = {"UPOS": upos / n, "UAS": uas / n, "LAS": las / n}
    found |= {"UAS_words": uas_words / words, "LAS_words": las_words / words}
    return {name: round(100 * float(share), 2) for name, share in found.items()}


def rate_at(step: int, steps: int, peak: float) -> float:
    """Learning rate: up in a line, then down in a line to a twentieth."""
    return peak * min((step + 1) / WARM_UP, 0.05 + 0.95 * (1 - step / steps))


def train(args: argparse.Namespace) -> Iterator[tuple[Language, dict[str, Any]]]:
    """Yields the pipeline whenever it is the best on dev so far, with what it reached there."""
    fix_random_seed(args.seed)
    folder = data_dir() / "ud_english_ewt"
    raw = read_conllu(folder / "en_ewt-ud-train.conllu")
    sentences = [rows_of(sentence) for sentence in raw]
    dev = [rows_of(s) for s in read_conllu(folder / "en_ewt-ud-dev.conllu")]
    lexicon = Lexicon(raw)
    held_out = Grammar(lexicon, np.random.default_rng([args.seed, 1]))
    captions = [held_out.caption() for _ in range(500)]
    rng = np.random.default_rng([args.seed, 0])
    grammar = Grammar(lexicon, rng)
    nlp = build()
    first = one_pass(sentences, grammar, rng)
    optimiser = nlp.initialize(lambda: [example(nlp, rows) for rows in first])
    optimiser.averages = {}
    words = sum(len(rows) for rows in first)
    steps = int(words / args.batch * 1.05) * args.passes
    start, step, best = time.monotonic(), 0, -1.0
    for number in range(args.passes):
        texts = first if number == 0 else one_pass(sentences, grammar, rng)
        examples = [example(nlp, rows) for rows in texts]
        running = 0.0
        progress = tqdm(
            minibatch_by_words(examples, size=args.batch, tolerance=0.2),
            total=steps // args.passes,
            desc=f"pass {number + 1} of {args.passes}",
            mininterval=5,
        )
        for batch in progress:
            optimiser.learn_rate = rate_at(min(step, steps), steps, args.rate)
            loss = nlp.update(batch, sgd=optimiser, drop=args.dropout)["parser"]
            running = 0.98 * running + 0.02 * loss if running else loss
            progress.set_postfix(loss=f"{running:.0f}", refresh=False)
            step += 1
        late = time.monotonic() - start > 60 * args.max_minutes
        if (number + 1) % 3 == 0 or late or number + 1 == args.passes:
            with nlp.use_params(optimiser.averages):
                found = scores(nlp, dev)
                on_captions = scores(nlp, captions)
                print(f"pass {number + 1}: dev {found}, captions {on_captions}", flush=True)
                if found["LAS"] + on_captions["LAS"] > best:
                    best = found["LAS"] + on_captions["LAS"]
                    minutes = round((time.monotonic() - start) / 60, 1)
                    yield nlp, {"passes": number + 1, "dev": found, "grammar": on_captions,
                                "minutes": minutes}  # fmt: skip
        if late:
            break


def save(nlp: Language, folder: Path) -> None:
    """Write a pipeline beside `folder`, then put it in its place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    # Without the treebank's words, people's addresses among them: features are hashes.
    nlp.to_disk(partial, exclude=["vocab"])  # and without labels, which the weights have
    write_json(partial / "meta.json", {k: v for k, v in nlp.meta.items() if k != "labels"})
    if folder.exists():
        shutil.rmtree(folder)
    os.replace(partial, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the bundled English pipeline")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--max-minutes", type=float, default=120, help="stop after that pass")
    parser.add_argument("--passes", type=int, default=14)
    parser.add_argument("--batch", type=int, default=1000, help="words")
    parser.add_argument("--rate", type=float, default=0.0015)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    state, reached = b"", dict[str, Any]()
    with use_ops("numpy", use_blis=False):  # numpy's own matrix products are the faster ones
        try:
            for nlp, found in train(args):
                state, reached = nlp.to_bytes(), found
        except KeyboardInterrupt:
            print("stopped; the best pass so far is kept")
        if not state:
            raise SystemExit("stopped before anything was learnt; nothing is written")
        best = build().from_bytes(state)
        folder = data_dir() / "ud_english_ewt"
        test = [rows_of(s) for s in read_conllu(folder / "en_ewt-ud-test.conllu")]
        on_test, on_first = scores(best, test), scores(best, test[:300])
    print(f"test: {on_test}")
    best.meta.update(META)
    best.meta["performance"] = {
        "ewt_test": on_test,
        "ewt_test_first_300": on_first,  # a test counts these anew
        "ewt_dev": reached["dev"],
        "caption_grammar": reached["grammar"],
        "how": "gold tokens, one sentence a text; all tokens and whole labels count; _words: "
        "without punctuation; caption_grammar: 500 captions of ci/caption_trees.py, not seen",
    }
    settings = {k: v for k, v in vars(args).items() if k not in ("out", "max_minutes")}
    best.meta["made"] = settings | {
        "by": "ci/train_parser.py",
        "passes": reached["passes"],
        "planned_passes": args.passes,
        "minutes": reached["minutes"],
        "spacy": spacy.__version__,
        "machine": platform.machine(),
    }
    save(best, args.out)
    size = sum(path.stat().st_size for path in args.out.rglob("*") if path.is_file())
    print(f"{args.out}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
