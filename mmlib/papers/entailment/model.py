"""Revising Image-Text Retrieval via Multi-Modal Entailment (Yan et al., 2022): the classifier.

Does a hypothesis follow from an image together with the image's captions? One branch reads texts
(TE), one reads the image (VE), a gate joins their states. The formulas of the paper's equations
are lost in the text that can be had; the forms here follow its wording and are marked [R],
reconstructed. B is the batch, D the width, R the regions of an image, L the tokens of a text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.features.encoders import (
    CrossEncoder,
    ImageEncoder,
    Shape,
    SingleStream,
    only_first,
    small_bert,
)
from mmlib.features.words import FrozenStates

BRANCHES = ("te", "ve", "mm")


@dataclass(frozen=True)
class Settings(Shape):
    """Sizes and choices of the classifier; the paper's own are BERT-base's and ALBEF's.

    text_layers are TE's BERT's; image_layers, words_layers and cross_layers are VE's.
    model: "both" (the paper's), "te", "ve" (Table 3's Only TE and Only VE trained alone), or
        "single", one transformer over words and regions, in OFA's place.
    text: "own" for TE's own BERT, "shared" for VE's text layers instead (w/o BERT).
    output: "softmax" over two classes (the paper's) or "sigmoid".
    masking, masked: ρ and how many positives of a batch are copied with a masked image; 0: none.
    """

    model: Literal["both", "te", "ve", "single"] = "both"
    text: Literal["own", "shared"] = "own"
    output: Literal["softmax", "sigmoid"] = "softmax"
    masking: float = 0.4
    masked: int = 4
    max_premise: int = 120
    max_hypothesis: int = 30


# --- Parts ---------------------------------------------------------------------------------------


class Head(nn.Module):
    """Eqs. 2, 4, 8 [R]: two hidden layers with ReLU, then logits of (not entailed, entailed).

    output "sigmoid": one logit, returned as (0, logit), which softmax turns into its sigmoid.
    """

    def __init__(self, width: int, output: str = "softmax"):
        super().__init__()
        self.output = output
        self.layers = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 2 if output == "softmax" else 1),
        )  # fmt: skip

    def forward(self, state: Tensor) -> Tensor:
        """States (B, D) -> logits (B, 2)."""
        logits = self.layers(state)
        return logits if self.output == "softmax" else F.pad(logits, (1, 0))


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
        both = torch.cat([te, ve], dim=1)
        open_te, open_ve = self.te(both).sigmoid(), self.ve(both).sigmoid()
        return open_te * te + open_ve * ve, open_te, open_ve


# --- The classifier ------------------------------------------------------------------------------


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


INDICATORS = {"te": (1, 0, 0), "ve": (0, 1, 0), "mme": (1, 1, 1)}


class Classifier(nn.Module):
    """TE, VE and the gate, or one of them alone, or a single stream (`Settings.model`).

    states: (tokens, W) states of a frozen encoder, which TE's own layers read in place of word
    embeddings; `Batch.pair` then counts these tokens, after the special ones.
    """

    def __init__(
        self, vocabulary: int, region_width: int, regions: int, settings: Settings,
        states: Tensor | None = None,
    ):  # fmt: skip
        super().__init__()
        self.settings, self.branches = settings, _branches(settings)
        positions = settings.max_premise + settings.max_hypothesis + 3
        if settings.model == "single":
            self.stream = SingleStream(vocabulary, region_width, regions, positions, settings)
            self.heads = nn.ModuleDict({"mm": Head(settings.width, settings.output)})
            return
        if settings.model in ("both", "ve") or settings.text == "shared":
            self.words = small_bert(settings, settings.words_layers, vocabulary, positions)
        if settings.model in ("both", "ve"):
            self.image = ImageEncoder(region_width, regions, settings)
            self.cross = CrossEncoder(settings)
            only_first(self.cross.layers[-1])
        if settings.model in ("both", "te") and settings.text == "own":
            self.text = small_bert(settings, settings.text_layers, vocabulary, positions)
            only_first(self.text.encoder.layer[-1])
            self.states = None if states is None else FrozenStates(states, settings.width)
        if settings.model == "both":
            self.gate = Gate(settings.width)
        self.heads = nn.ModuleDict(
            {branch: Head(settings.width, settings.output) for branch in self.branches}
        )

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Logits (B, 2) by branch; in training of no meaning where no loss counts for a branch."""
        if self.settings.model == "single":
            state = self.stream(batch.pair, batch.pair_mask, batch.pair_type, batch.images)
            return {"mm": self.heads["mm"](state)}
        states: dict[str, Tensor] = {}
        if "te" in self.branches:
            states["te"] = self._only(batch, (0, 2), self._text_state)
        if "ve" in self.branches:
            states["ve"] = self._only(batch, (1, 2), self._image_state)
        if "mm" in self.branches:
            states["mm"], *_ = self.gate(states["te"], states["ve"])
        return {name: self.heads[name](state) for name, state in states.items()}

    def _only(
        self, batch: Batch, losses: tuple[int, int], encode: Callable[[Batch], Tensor]
    ) -> Tensor:
        """What `encode` makes of samples; in training zeros where neither of two losses counts."""
        rows = batch.counted[:, losses].any(dim=1).nonzero()[:, 0]
        if not self.training or len(rows) in (0, len(batch.labels)):
            return encode(batch)
        some = encode(Batch(**{name: value[rows] for name, value in vars(batch).items()}))
        return some.new_zeros(len(batch.labels), some.shape[1]).index_copy(0, rows, some)

    def _text_state(self, batch: Batch) -> Tensor:
        """h_te (eq. 1)."""
        own = self.settings.text == "own"
        read: dict[str, Tensor] = {"input_ids": batch.pair}
        if own and self.states is not None:
            read = {"inputs_embeds": self.states(batch.pair)}
        out = (self.text if own else self.words)(
            **read, attention_mask=batch.pair_mask, token_type_ids=batch.pair_type
        )
        return out.last_hidden_state[:, 0]

    def _image_state(self, batch: Batch) -> Tensor:
        """h_ve (eq. 3)."""
        image, _ = self.image(batch.images)
        words = self.words(input_ids=batch.words, attention_mask=batch.words_mask)
        return self.cross(words.last_hidden_state, batch.words_mask.bool(), image)[:, 0]


def _branches(settings: Settings) -> tuple[str, ...]:
    return {"both": BRANCHES, "te": ("te",), "ve": ("ve",), "single": ("mm",)}[settings.model]


def joint_loss(logits: Mapping[str, Tensor], labels: Tensor, counted: Tensor) -> Tensor:
    """Eqs. 9 to 12 [R]: cross-entropy of each branch over the samples that count for it, added up.

    logits (B, 2) by branch; labels (B,) 0 or 1; counted (B, 3): δ for te, ve, mm. Each branch's
    mean is over its own samples; a branch without any adds nothing. A single stream's "mm" counts
    every sample.
    """
    total = counted.new_zeros((), dtype=torch.float32)
    for name, own in logits.items():
        alone = len(logits) == 1 and name == "mm"
        weight = torch.ones_like(labels) if alone else counted[:, BRANCHES.index(name)]
        losses = F.cross_entropy(own, labels, reduction="none")
        total = total + (weight * losses).sum() / weight.sum().clamp_min(1)
    return total


def evidence_for(logits: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Log odds (B,) of entailment by branch: 0 where the probability is one half."""
    return {name: (own[:, 1] - own[:, 0]).detach().cpu().numpy() for name, own in logits.items()}


# --- Image masking (Sec. 3.3) --------------------------------------------------------------------


def mask_regions(images: Tensor, attention: Tensor, ratio: float) -> Tensor:
    """Images (B, R, W) whose ⌊ρR⌋ regions of highest attention (B, R) are 0, the mean region."""
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
    masked = mask_regions(batch.images[rows], attention[rows].detach(), ratio)
    counted = batch.counted[rows].clone()
    counted[:, 0] = 0
    parts = {
        name: torch.cat([value, value[rows]])
        for name, value in vars(batch).items()
        if name not in ("images", "labels", "counted")
    }
    return Batch(
        **parts,
        images=torch.cat([batch.images, masked]),
        labels=torch.cat([batch.labels, torch.zeros_like(batch.labels[rows])]),
        counted=torch.cat([batch.counted, counted]),
    )
