"""Revising Image-Text Retrieval via Multi-Modal Entailment (Yan et al., 2022): the judge.

Does a hypothesis follow from an image together with the image's captions? One branch reads texts
(TE), one reads the image (VE), a gate joins their states (MM). `revision` holds the paper's second
half, what becomes of a retriever's training. The formulas of the paper's equations are lost in the
text that can be had; the forms here follow its wording and are marked [R], reconstructed.

B is the batch, D the width, R the regions of an image, W the width of their features, L the tokens
of a packed pair of texts, M those of a hypothesis.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.core.errors import DataError
from mmlib.features import encoders
from mmlib.features.words import FrozenStates

BRANCHES = ("te", "ve", "mm")
INDICATORS = {"te": (1, 0, 0), "ve": (0, 1, 0), "mme": (1, 1, 1)}  # kind of sample -> δ of eq. 12


@dataclass(frozen=True)
class Settings(encoders.Shape):
    """Sizes and choices of the classifier; the paper's own are BERT-base's and ALBEF's.

    text_layers are TE's BERT's; image_layers, words_layers and cross_layers are VE's.
    model: both branches, one, or a single stream; text: TE's layers, "shared" are VE's; output: of
    a head. masking, masked: ρ and how many positives of a batch are copied with a masked image; 0:
    none. max_premise, max_hypothesis: tokens.
    """

    model: Literal["both", "te", "ve", "single"] = "both"
    text: Literal["own", "shared"] = "own"
    output: Literal["softmax", "sigmoid"] = "softmax"
    masking: float = 0.4
    masked: int = 4
    max_premise: int = 120
    max_hypothesis: int = 30


@dataclass(frozen=True)
class Batch:
    """Samples of all three kinds side by side.

    pair, pair_mask, pair_type (B, L): [CLS] premise [SEP] hypothesis [SEP], as TE reads it.
    words, words_mask (B, M): [CLS] hypothesis [SEP], as VE reads it.
    images (B, R, W): zeros (a black image) for text-text samples. labels (B,).
    counted (B, 3): δ of eq. 12, whether the TE, VE and MM losses count.
    """

    pair: Tensor
    pair_mask: Tensor
    pair_type: Tensor
    words: Tensor
    words_mask: Tensor
    images: Tensor
    labels: Tensor
    counted: Tensor

    def take(self, rows: Tensor) -> "Batch":
        """Some samples of the batch."""
        return Batch(**{name: column[rows] for name, column in vars(self).items()})


class Head(nn.Module):
    """Eqs. 2, 4, 8 [R]: two hidden layers with ReLU, then logits of (not entailed, entailed).

    With one class (0, logit), which softmax turns into its sigmoid.
    """

    def __init__(self, width: int, classes: int = 2):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, classes),
        )  # fmt: skip

    def forward(self, state: Tensor) -> Tensor:
        """States (B, D) -> logits (B, 2)."""
        logits = self.layers(state)
        return F.pad(logits, (1, 0)) if logits.shape[1] == 1 else logits


class Gate(nn.Module):
    """Eqs. 5 to 7 [R]: g_b = σ(W_b [h_te; h_ve] + b_b), h_mm = g_te ∘ h_te + g_ve ∘ h_ve.

    W_b is D × 2D. The gates need not add up to 1.
    """

    def __init__(self, width: int):
        super().__init__()
        self.te = nn.Linear(2 * width, width)
        self.ve = nn.Linear(2 * width, width)

    def forward(self, te: Tensor, ve: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h_te, h_ve (B, D) -> h_mm (B, D) and the two gates (B, D)."""
        states = torch.cat([te, ve], dim=1)  # (B, 2D)
        open_te, open_ve = self.te(states).sigmoid(), self.ve(states).sigmoid()
        return open_te * te + open_ve * ve, open_te, open_ve


class Classifier(nn.Module):
    """TE, VE and the gate that joins them, or one branch alone.

    vocabulary, region_width, regions: of what it reads. states: (tokens, W) states of a frozen
    encoder, which TE's layers read in place of word embeddings; `Batch.pair` then counts these
    tokens, after the special ones. head: from the state of a branch to its logits.
    """

    branches: tuple[str, ...] = BRANCHES

    def __init__(
        self, vocabulary: int, region_width: int, regions: int, settings: Settings,
        states: Tensor | None = None, head: Callable[[int], Head] = Head,
    ):  # fmt: skip
        super().__init__()
        self.settings = settings
        if settings.model in BRANCHES:
            self.branches = (settings.model,)  # alone
        special = 3  # [CLS] ... [SEP] ... [SEP]
        self.longest = settings.max_premise + settings.max_hypothesis + special
        self._add_layers(vocabulary, region_width, regions, states)
        self.heads = nn.ModuleDict({name: head(settings.width) for name in self.branches})

    def _add_layers(
        self, vocabulary: int, region_width: int, regions: int, states: Tensor | None
    ) -> None:
        settings, positions = self.settings, self.longest
        if "ve" in self.branches:  # of ALBEF's shape: over words, over regions, of words over both
            self.words = encoders.small_bert(settings, settings.words_layers, vocabulary, positions)
            self.image = encoders.ImageEncoder(region_width, regions, settings)
            self.cross = encoders.CrossEncoder(settings)
            encoders.only_first(self.cross.layers[-1])
        if "te" in self.branches and settings.text == "own":  # a BERT over both texts
            self.text = encoders.small_bert(settings, settings.text_layers, vocabulary, positions)
            encoders.only_first(self.text.encoder.layer[-1])
            self.states = None if states is None else FrozenStates(states, settings.width)
        if "mm" in self.branches:
            self.gate = Gate(settings.width)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Logits (B, 2) by branch; in training of no meaning where no loss counts for a branch."""
        return {name: self.heads[name](state) for name, state in self.branch_states(batch).items()}

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """h_te, h_ve and h_mm (B, D), of the branches that there are."""
        states = {}
        if "te" in self.branches:
            states["te"] = self._where_counted(batch, (0, 2), self.text_state)
        if "ve" in self.branches:
            states["ve"] = self._where_counted(batch, (1, 2), self.image_state)
        if "mm" in self.branches:
            states["mm"], *_ = self.gate(states["te"], states["ve"])
        return states

    def text_state(self, batch: Batch) -> Tensor:
        """h_te (B, D), eq. 1: the state of [CLS] before premise and hypothesis.

        Shared text layers (w/o BERT) are VE's.
        """
        own, tokens = self.settings.text == "own", {"input_ids": batch.pair}
        if own and self.states is not None:
            tokens = {"inputs_embeds": self.states(batch.pair)}
        shown = {"attention_mask": batch.pair_mask, "token_type_ids": batch.pair_type}
        bert = self.text if own else self.words
        return bert(**tokens, **shown).last_hidden_state[:, 0]  # of (B, L, D)

    def image_state(self, batch: Batch) -> Tensor:
        """h_ve (B, D), eq. 3: the state of the hypothesis' [CLS] after it attended to the image."""
        image, _ = self.image(batch.images)  # (B, 1 + R, D)
        words = self.words(input_ids=batch.words, attention_mask=batch.words_mask)  # (B, M, D)
        return self.cross(words.last_hidden_state, batch.words_mask.bool(), image)[:, 0]

    def _where_counted(
        self, batch: Batch, losses: tuple[int, int], encode: Callable[[Batch], Tensor]
    ) -> Tensor:
        # `encode` of a batch (B, D); in training zeros where neither of two losses counts.
        rows = batch.counted[:, losses].any(dim=1).nonzero()[:, 0]
        if not self.training or len(rows) in (0, len(batch.labels)):
            return encode(batch)
        states = encode(batch.take(rows))
        return states.new_zeros(len(batch.labels), states.shape[1]).index_copy(0, rows, states)


def joint_loss(logits: Mapping[str, Tensor], labels: Tensor, counted: Tensor) -> Tensor:
    """Eqs. 9 to 12 [R]: cross-entropy of each branch over the samples that count for it, added up.

    logits (B, 2) by branch; labels (B,) 0 or 1; counted (B, 3): δ for te, ve, mm. Each branch's
    mean is over its own samples; a branch without any adds nothing.
    """
    total = counted.new_zeros((), dtype=torch.float32)
    for name, branch_logits in logits.items():
        weight = counted[:, BRANCHES.index(name)]  # (B,)
        losses = F.cross_entropy(branch_logits, labels, reduction="none")
        total = total + (weight * losses).sum() / weight.sum().clamp_min(1)
    return total


def log_odds(logits: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Log odds (B,) of entailment by branch: 0 where the probability is one half."""
    return {name: (out[:, 1] - out[:, 0]).detach().cpu().numpy() for name, out in logits.items()}


def mask_regions(images: Tensor, attention: Tensor, ratio: float) -> Tensor:
    """Sec. 3.3: images (B, R, W) whose ⌊ρR⌋ regions of highest attention (B, R) are 0, the mean."""
    count = int(ratio * images.shape[1] + 1e-9)
    top = attention.topk(count, dim=1).indices
    hidden = torch.zeros_like(attention, dtype=torch.bool).scatter(1, top, True)
    return images.masked_fill(hidden[..., None], 0.0)


def with_masked(batch: Batch, attention: Tensor, ratio: float, most: int) -> Batch:
    """The batch with copies of its first `most` positives with an image, their image masked.

    The copies are negatives for VE and MM. The text premise of a copy still entails its
    hypothesis, so that the TE loss does not count for it [R].
    """
    positive = (batch.labels == 1) & (batch.counted[:, 1] == 1)
    rows = positive.nonzero()[:most, 0]
    if not len(rows) or int(ratio * batch.images.shape[1] + 1e-9) == 0:
        return batch  # an image that is not masked would be no negative
    copies = vars(batch.take(rows)) | {
        "images": mask_regions(batch.images[rows], attention[rows].detach(), ratio),
        "labels": torch.zeros_like(batch.labels[rows]),
        "counted": batch.counted[rows] * batch.counted.new_tensor([0, 1, 1]),
    }
    columns = {name: torch.cat([column, copies[name]]) for name, column in vars(batch).items()}
    return Batch(**columns)


# --- Table 3's other classifiers ------------------------------------------------------------------


class Stream(Classifier):
    """One transformer over words and regions, in OFA's place. Every sample counts for its loss."""

    branches = ("mm",)

    def _add_layers(
        self, vocabulary: int, region_width: int, regions: int, states: Tensor | None
    ) -> None:
        self.stream = encoders.SingleStream(
            vocabulary, region_width, regions, self.longest, self.settings
        )

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """[CLS]'s state (B, D) over both texts and the regions."""
        return {"mm": self.stream(batch.pair, batch.pair_mask, batch.pair_type, batch.images)}


def classifier(
    settings: Settings, vocabulary: int, images: np.ndarray, states: Tensor | None = None
) -> Classifier:
    """A classifier with fresh weights, as settings ask for, that reads rows of an image table.

    Raises KeyError for shared text layers where there is no image branch to share them with.
    """
    _, regions, width = images.shape
    head = partial(Head, classes=1 if settings.output == "sigmoid" else 2)
    if settings.text == "shared" and settings.model != "both":
        raise KeyError(f"{settings.model}: there is no image branch whose text layers to share")
    kind = Stream if settings.model == "single" else Classifier
    model = kind(vocabulary, width, regions, settings, states, head)
    if hasattr(model, "text"):
        encoders.mimetic(model.text)
    return model


@torch.no_grad()
def load_pretrained(model: nn.Module, weights: Mapping[str, Tensor]) -> set[str]:
    """Copy pretrained weights to where a model has their names; the names of those copied.

    Embeddings of words and positions may be of another number: the first ones are copied. Raises
    DataError where the model has their names and no shape fits.
    """
    state, copied, others = model.state_dict(), set(), []
    for name in sorted(weights.keys() & state.keys()):
        value, target, first = weights[name], state[name], int("_embeddings" in name)
        if value.shape[first:] == target.shape[first:]:
            n = min(len(target), len(value))
            target[:n] = value[:n]
            copied.add(name)
        else:
            others.append(f"{name} is {tuple(value.shape)} and not {tuple(target.shape)}")
    if others and not copied:
        raise DataError(f"none of {len(others)} pretrained tensors fits: {others[0]}")
    return copied
