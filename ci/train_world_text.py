"""Pretrain the small BERT of the picture world on sentences of its own: about 8 minutes of a core.

    python ci/train_world_text.py

Writes the folder mmlib/world/bert, as transformers reads it, with notes in the metadata of the
weights. Scenes are of the split "backbone", which no notebook trains or tests on. No label of
entailment is used. Two stages:

1. Two captions of one scene are to be nearer than captions of different scenes (mean token states,
   in-batch softmax): words learn what they have in common and what tells them apart.
2. Next-sentence prediction, BERT's own second task: is the second text another caption of the
   scene that the first text (one to three captions) describes?

Query and key matrices start equal (Trockman and Kolter, Mimetic Initialization, ICML 2023), so that
a word attends to its likes from the beginning; from BERT's own start, stage 2 learns nothing in the
same time.
"""

import argparse
import copy
import json
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from transformers import PretrainedConfig

from mmlib.core.fit import seed_everything
from mmlib.core.paths import write_atomic
from mmlib.features.encoders import small_bert
from mmlib.features.words import CLS, SEP, SPECIAL, UNKNOWN, Words, padded
from mmlib.papers.entailment.data.world import RETRIEVERS
from mmlib.papers.entailment.method.classifier import Head
from mmlib.papers.entailment.run.systems import BUDGETS
from mmlib.world import BERT
from mmlib.world.captions import captions
from mmlib.world.scenes import sample_scene, split_seeds

LIST = 3  # which list of the split's scenes; the retrievers' is another
EACH = 6  # captions of a scene
RATE, GAIN, SCALE = 1e-3, 1.5, 20.0
SENTENCES, PAIRS = 96, 32  # batch sizes of the stages
HELD_OUT = 500


def mimetic(bert: Any) -> None:  # nn.Module does not know a BERT's layers
    """Equal orthogonal queries and keys; words of about the size that layer norm gives them."""
    with torch.no_grad():
        for layer in bert.encoder.layer:
            own = layer.attention.self
            nn.init.orthogonal_(own.query.weight, GAIN)
            own.key.weight.copy_(own.query.weight)
        words = bert.embeddings.word_embeddings.weight
        words.normal_(0, words.shape[1] ** -0.5)


def read(bert: nn.Module, rows: Sequence[Sequence[int]], first: Sequence[int]) -> tuple:
    """States (B, L, D) of rows of ids and their mask; tokens from `first` on are of kind 1."""
    ids, lengths = padded(rows)
    place = np.arange(ids.shape[1])
    mask = torch.from_numpy((place < lengths[:, None]).astype(np.int64))
    kinds = torch.from_numpy((place >= np.array(first)[:, None]).astype(np.int64))
    out = bert(input_ids=torch.from_numpy(ids), attention_mask=mask, token_type_ids=kinds)
    return out.last_hidden_state, mask


def nearness_loss(bert: nn.Module, ids: list, rng: np.random.Generator) -> Tensor:
    """Stage 1: in-batch softmax of cosines, scenes that were drawn twice left out."""
    scenes = rng.integers(0, len(ids), SENTENCES)
    drawn = [rng.permutation(EACH)[:2] for _ in scenes]
    sides = []
    for side in (0, 1):
        rows = [[CLS, *ids[s][k[side]], SEP] for s, k in zip(scenes, drawn, strict=True)]
        states, mask = read(bert, rows, [1 if side else len(row) for row in rows])
        mean = (states * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        sides.append(F.normalize(mean, dim=1))
    same = torch.from_numpy(scenes[:, None] == scenes) & ~torch.eye(SENTENCES, dtype=torch.bool)
    logits = (SCALE * sides[0] @ sides[1].T).masked_fill(same, -torch.inf)
    labels = torch.arange(SENTENCES)
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2


def next_sentence(ids: list, rng: np.random.Generator, most: int) -> tuple[list, list, Tensor]:
    """Stage 2: pairs of texts, where the second begins, and whether they are of one scene."""
    rows, first, labels = [], [], []
    for scene in rng.integers(0, len(ids), PAIRS):
        order, count = rng.permutation(EACH), int(rng.integers(1, most + 1))
        same = int(rng.random() < 0.5)
        other = scene if same else rng.integers(0, len(ids))
        premise = [i for k in order[:count] for i in ids[scene][k]]
        rows.append([CLS, *premise, SEP, *ids[other][order[count]], SEP])
        first.append(len(premise) + 2)
        labels.append(same)
    return rows, first, torch.tensor(labels)


def steps(count: int, name: str, optimiser: torch.optim.Optimizer, fall: bool) -> Iterator[int]:
    """Numbers of steps with the rate set: warm-up, then constant or falling to 5 %."""
    for step in tqdm(range(count), desc=name):
        share = (1 - 0.95 * step / count) if fall else 1.0
        for group in optimiser.param_groups:
            group["lr"] = RATE * share * min(1.0, step / 100)
        yield step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenes", type=int, default=20000)
    parser.add_argument("--first", type=int, default=1500, help="steps of stage 1")
    parser.add_argument("--second", type=int, default=9000, help="steps of stage 2")
    parser.add_argument("--out", type=Path, default=BERT)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    started = time.perf_counter()
    words = Words(json.loads(safe_open(RETRIEVERS, "pt").metadata()["words"]))
    settings = BUDGETS["world"].judge.classifier
    scenes = [sample_scene(seed) for seed in split_seeds("backbone", chosen.scenes, LIST)]
    ids = [[words.ids(c.text) for c in captions(scene, 0, EACH)] for scene in tqdm(scenes)]
    held, ids = ids[:HELD_OUT], ids[HELD_OUT:]

    seed_everything(0)
    positions = settings.max_premise + settings.max_hypothesis + 3
    bert = small_bert(settings, settings.text_layers, len(words), positions)
    head = Head(settings.width)
    mimetic(bert)
    both = [*bert.parameters(), *head.parameters()]
    losses: dict[str, list[float]] = {"stage 1": [], "stage 2": []}
    rng, optimiser = np.random.default_rng(0), torch.optim.AdamW(both, RATE, weight_decay=0.02)
    for _ in steps(chosen.first, "stage 1", optimiser, fall=False):
        losses["stage 1"].append(descend(nearness_loss(bert, ids, rng), optimiser))
    optimiser = torch.optim.AdamW(both, RATE, weight_decay=0.02)
    for step in steps(chosen.second, "stage 2", optimiser, fall=True):
        rows, first, labels = next_sentence(ids, rng, 2 if step < chosen.second / 3 else 3)
        states, _ = read(bert, rows, first)
        loss = F.cross_entropy(head(states[:, 0]), labels)
        losses["stage 2"].append(descend(loss, optimiser))

    rng, right = np.random.default_rng(1), []
    with torch.no_grad():
        for _ in range(60):
            rows, first, labels = next_sentence(held, rng, 3)
            right += (head(read(bert, rows, first)[0][:, 0]).argmax(dim=1) == labels).tolist()
    notes = {
        "made_by": "ci/train_world_text.py", "split": "backbone", "list": LIST,
        "scenes": len(ids), "seed": 0, "torch": torch.__version__, "machine": platform.machine(),
        "losses": {k: [round(float(np.mean(v[-200:])), 3)] for k, v in losses.items()},
        "next sentence, accuracy on held-out scenes": round(float(np.mean(right)), 3),
        "minutes": round((time.perf_counter() - started) / 60, 1),
    }  # fmt: skip
    print(json.dumps(notes, indent=1))
    write_bert(chosen.out, bert.config, bert.state_dict(), words, json.dumps(notes))


def write_bert(
    folder: Path, config: PretrainedConfig, weights: Mapping[str, Tensor], words: Words, notes: str
) -> None:
    """Configuration, tokenizer and weights of half precision; [MASK] is added, never trained."""
    numbers = {word: i for i, word in enumerate((*SPECIAL, *words.words, "[MASK]"))}
    kept = {name: value.half() for name, value in weights.items() if value.is_floating_point()}
    name = "embeddings.word_embeddings.weight"
    kept[name] = torch.cat([kept[name], kept[name].float().mean(dim=0, keepdim=True).half()])
    own = copy.deepcopy(config)
    own.vocab_size = len(numbers)
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token=SPECIAL[UNKNOWN]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # what `tokenize` makes of world captions
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("[,.]"), "isolated")]
    )
    ends = [(SPECIAL[one], one) for one in (CLS, SEP)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    folder.mkdir(parents=True, exist_ok=True)
    own.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    path = folder / "model.safetensors"
    write_atomic(path, lambda part: save_file(kept, part, {"notes": notes, "format": "pt"}))
    path.chmod(0o644)


def descend(loss: Tensor, optimiser: torch.optim.Optimizer) -> float:
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss.item()


if __name__ == "__main__":
    main()
