"""Revising Image-Text Retrieval via Multi-Modal Entailment (Yan et al., 2022): the classifier.

Does a hypothesis follow from an image together with the image's captions? One branch reads texts
(TE), one reads the image (VE), a gate joins their states. The formulas of the paper's equations
are lost in the text that can be had; the forms here follow its wording and are marked [R],
reconstructed. B is the batch, D the width, R the regions of an image, L the tokens of a text.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from transformers import BertModel

PAD, CLS, SEP, UNKNOWN = 0, 1, 2, 3
SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
BRANCHES = ("te", "ve", "mm")


@dataclass(frozen=True)
class Settings:
    """Sizes and choices of the classifier; the paper's own are BERT-base's and ALBEF's.

    width, heads: D and the attention heads of all transformers. text_layers: of TE's BERT (12);
    image_layers, words_layers, cross_layers: of VE (12, 6, 6 in ALBEF).
    model: "both" (the paper's), "te", "ve" (Table 3's Only TE and Only VE trained alone), or
        "single", one transformer over words and regions, in OFA's place.
    text: "own" for TE's own BERT, "shared" for VE's text layers instead (w/o BERT).
    gate: "vector" (a weight for each value) or "scalar" (one a branch). output: "softmax" over two
        classes (the paper's) or "sigmoid".
    masking, masked: ρ and how many positives of a batch are copied with a masked image; 0: none.
    """

    width: int = 768
    heads: int = 12
    text_layers: int = 12
    image_layers: int = 12
    words_layers: int = 6
    cross_layers: int = 6
    dropout: float = 0.1
    model: Literal["both", "te", "ve", "single"] = "both"
    text: Literal["own", "shared"] = "own"
    gate: Literal["vector", "scalar"] = "vector"
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

    kind "vector": W_b is D × 2D; "scalar": 1 × 2D. The gates need not add up to 1.
    """

    def __init__(self, width: int, kind: str = "vector"):
        super().__init__()
        size = width if kind == "vector" else 1
        self.te = nn.Linear(2 * width, size)
        self.ve = nn.Linear(2 * width, size)

    def forward(self, te: Tensor, ve: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """h_te, h_ve (B, D) -> h_mm (B, D) and the two gates (B, D or 1)."""
        both = torch.cat([te, ve], dim=1)
        open_te, open_ve = self.te(both).sigmoid(), self.ve(both).sigmoid()
        return open_te * te + open_ve * ve, open_te, open_ve


def _config(settings: Settings, layers: int, vocabulary: int, positions: int, **more: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(  # type: ignore[call-arg]
        vocab_size=vocabulary, hidden_size=settings.width, num_hidden_layers=layers,
        num_attention_heads=settings.heads, intermediate_size=4 * settings.width,
        max_position_embeddings=positions, hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout, pad_token_id=PAD,
        **{"attn_implementation": "eager", **more},
    )  # fmt: skip


def small_bert(
    settings: Settings, layers: int, vocabulary: int, positions: int, seen: bool = False
) -> "BertModel":
    """A BERT of the settings' width with fresh weights and no pooler.

    seen: whether it can be asked for its attention, which makes it slower.
    """
    from transformers import BertModel

    attention = "eager" if seen else "sdpa"
    config = _config(settings, layers, vocabulary, positions, attn_implementation=attention)
    return BertModel(config, add_pooling_layer=False)


class ImageEncoder(nn.Module):
    """A transformer over an image's regions with [CLS] in front, as a ViT over patches."""

    def __init__(self, region_width: int, regions: int, settings: Settings):
        super().__init__()
        self.project = nn.Linear(region_width, settings.width)
        self.first = nn.Parameter(0.02 * torch.randn(settings.width))
        self.layers = small_bert(settings, settings.image_layers, 1, regions + 1, seen=True)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (B, R, W) -> states (B, 1 + R, D), and [CLS]'s attention to regions (B, R).

        The attention is the last layer's, the mean over its heads, and adds up to less than 1, as
        [CLS] attends to itself too.
        """
        regions = self.project(images)
        first = self.first.expand(len(images), 1, -1)
        out = self.layers(inputs_embeds=torch.cat([first, regions], dim=1), output_attentions=True)
        return out.last_hidden_state, out.attentions[-1][:, :, 0, 1:].mean(dim=1)


class CrossEncoder(nn.Module):
    """Transformer layers in which words attend to words and then to the image (ALBEF's shape)."""

    def __init__(self, settings: Settings):
        super().__init__()
        from transformers.models.bert.modeling_bert import BertLayer

        config = _config(settings, 1, 1, 1, is_decoder=True, add_cross_attention=True)
        self.layers = nn.ModuleList(
            BertLayer(config, layer_idx=i) for i in range(settings.cross_layers)
        )

    def forward(self, words: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """States of words (B, L, D), mask (B, L) bool, image states (B, 1 + R, D) -> (B, L, D).

        transformers calls such a layer a decoder's; with a mask given, no word is hidden from
        those before it.
        """
        hidden = torch.zeros(mask.shape, dtype=words.dtype, device=words.device).masked_fill(
            ~mask, torch.finfo(words.dtype).min
        )[:, None, None]
        for layer in self.layers:
            words = layer(words, attention_mask=hidden, encoder_hidden_states=image)
        return words


def only_first(layer: nn.Module) -> None:
    """Let a BERT layer make nothing but [CLS]'s state, (B, 1, D), where no other one is read.

    Its self-attention still sees all tokens, so that state is the same; the rest, most of the
    layer's work, is done for one token.
    """
    layer.attention.register_forward_hook(_first)  # type: ignore[union-attr, operator]


def _first(attention: nn.Module, inputs: tuple, output: tuple) -> tuple:
    return (output[0][:, :1], *output[1:])


def mimetic(bert: "BertModel", gain: float = 1.0, marks: float = 0.5) -> None:
    """Let tokens attend to their likes from the start, and see what these have that they have not.

    Queries equal keys, and values times the output map are −1 (Trockman and Kolter, Mimetic
    Initialization, ICML 2023): a layer takes from a token the mean of its likes. The marks of the
    two texts (of deviation `marks`) are not lost beside words. From BERT's own start, small models
    spend most of a short training on finding out that equal words have to do with each other.
    """
    layers: Any = bert.encoder.layer
    with torch.no_grad():
        for layer in layers:
            own = layer.attention.self
            nn.init.orthogonal_(own.query.weight, gain)
            own.key.weight.copy_(own.query.weight)
            nn.init.eye_(own.value.weight)
            layer.attention.output.dense.weight.copy_(-own.value.weight)
        bert.embeddings.token_type_embeddings.weight.normal_(0, marks)


class FrozenStates(nn.Module):
    """Token states (tokens, W) of a frozen encoder as word embeddings, projected to a width."""

    table: Tensor
    mean: Tensor
    scale: Tensor

    def __init__(self, states: Tensor, width: int):
        super().__init__()
        self.register_buffer("table", states, persistent=False)  # not kept in checkpoints
        some = states[:: max(1, len(states) // 20000)].float()
        self.register_buffer("mean", some.mean(dim=0))
        self.register_buffer("scale", some.std(dim=0) + 1e-3)
        self.special = nn.Embedding(len(SPECIAL), width)
        self.project = nn.Linear(states.shape[1], width)
        nn.init.orthogonal_(self.project.weight)  # near tokens stay near

    def forward(self, ids: Tensor) -> Tensor:
        """Ids (B, L), the special tokens' first and then the table's rows -> (B, L, width)."""
        rows = (ids - len(SPECIAL)).clamp_min(0)
        found = self.table[rows].to(self.project.weight.dtype)
        found = (found - self.mean) / self.scale
        special = self.special(ids.clamp_max(len(SPECIAL) - 1))
        return torch.where((ids < len(SPECIAL))[..., None], special, self.project(found))


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


@dataclass(frozen=True)
class Output:
    """Logits (B, 2) by branch, [CLS]'s attention to regions (B, R), and the gates' means (B, 2)."""

    logits: dict[str, Tensor]
    attention: Tensor | None = None
    gates: Tensor | None = None


class Classifier(nn.Module):
    """TE, VE and the gate, or one of them alone, or a single stream (`Settings.model`).

    states: (tokens, W) states of a frozen encoder, which TE's own layers read in place of word
    embeddings; `Batch.pair` then counts these tokens, after the special ones.
    """

    def __init__(
        self,
        vocabulary: int,
        region_width: int,
        regions: int,
        settings: Settings,
        states: Tensor | None = None,
    ):
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
            self.gate = Gate(settings.width, settings.gate)
        self.heads = nn.ModuleDict(
            {branch: Head(settings.width, settings.output) for branch in self.branches}
        )

    def forward(self, batch: Batch) -> Output:
        """All branches' logits; in training, where no loss counts for a branch, of no meaning."""
        if self.settings.model == "single":
            return Output({"mm": self.heads["mm"](self.stream(batch))})
        states: dict[str, Tensor] = {}
        attention = gates = None
        if "te" in self.branches:
            states["te"] = self._only(batch, (0, 2), self._text_state)[0]
        if "ve" in self.branches:
            states["ve"], attention = self._only(batch, (1, 2), self._image_state)
        if "mm" in self.branches:
            states["mm"], te, ve = self.gate(states["te"], states["ve"])
            gates = torch.stack([te.mean(dim=1), ve.mean(dim=1)], dim=1)
        logits = {name: self.heads[name](state) for name, state in states.items()}
        return Output(logits, attention, gates)

    def _only(
        self, batch: Batch, losses: tuple[int, int], encode: "Callable[[Batch], tuple]"
    ) -> tuple[Tensor, ...]:
        """What `encode` makes of samples; in training zeros where neither of two losses counts."""
        rows = batch.counted[:, losses].any(dim=1).nonzero()[:, 0]
        if not self.training or len(rows) in (0, len(batch.labels)):
            return encode(batch)
        some = encode(Batch(**{name: value[rows] for name, value in vars(batch).items()}))
        return tuple(
            one.new_zeros(len(batch.labels), *one.shape[1:]).index_copy(0, rows, one)
            for one in some
        )

    def _text_state(self, batch: Batch) -> tuple[Tensor]:
        """h_te (eq. 1)."""
        own = self.settings.text == "own"
        read: dict[str, Tensor] = {"input_ids": batch.pair}
        if own and self.states is not None:
            read = {"inputs_embeds": self.states(batch.pair)}
        out = (self.text if own else self.words)(
            **read, attention_mask=batch.pair_mask, token_type_ids=batch.pair_type
        )
        return (out.last_hidden_state[:, 0],)

    def _image_state(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """h_ve (eq. 3) and [CLS]'s attention to regions."""
        image, attention = self.image(batch.images)
        words = self.words(input_ids=batch.words, attention_mask=batch.words_mask)
        state = self.cross(words.last_hidden_state, batch.words_mask.bool(), image)[:, 0]
        return state, attention


def _branches(settings: Settings) -> tuple[str, ...]:
    return {"both": BRANCHES, "te": ("te",), "ve": ("ve",), "single": ("mm",)}[settings.model]


class SingleStream(nn.Module):
    """One transformer over [CLS] premise [SEP] hypothesis [SEP] and the regions after them."""

    def __init__(
        self, vocabulary: int, region_width: int, regions: int, positions: int, settings: Settings
    ):
        super().__init__()
        self.project = nn.Linear(region_width, settings.width)
        layers = settings.words_layers + settings.cross_layers
        self.layers = small_bert(settings, layers, vocabulary, positions + regions)
        only_first(self.layers.encoder.layer[-1])

    def forward(self, batch: Batch) -> Tensor:
        """The state (B, D) of [CLS]."""
        words = self.layers.embeddings.word_embeddings(batch.pair)
        regions = self.project(batch.images)
        mask = torch.cat([batch.pair_mask, batch.pair_mask.new_ones(regions.shape[:2])], dim=1)
        kinds = torch.cat([batch.pair_type, batch.pair_type.new_ones(regions.shape[:2])], dim=1)
        out = self.layers(
            inputs_embeds=torch.cat([words, regions], dim=1),
            attention_mask=mask,
            token_type_ids=kinds,
            position_ids=places(self.layers, words.shape[1], regions.shape[1]),
        )
        return out.last_hidden_state[:, 0]


def places(bert: "BertModel", words: int, regions: int) -> Tensor:
    """Positions (1, words + regions): regions take the last ones, however long the texts are."""
    last = bert.config.max_position_embeddings
    device = bert.embeddings.word_embeddings.weight.device
    return torch.tensor([[*range(words), *range(last - regions, last)]], device=device)


def joint_loss(output: Output, labels: Tensor, counted: Tensor) -> Tensor:
    """Eqs. 9 to 12 [R]: cross-entropy of each branch over the samples that count for it, added up.

    labels (B,) 0 or 1; counted (B, 3): δ for te, ve, mm. Each branch's mean is over its own
    samples; a branch without any adds nothing. A single stream's "mm" counts every sample.
    """
    total = counted.new_zeros((), dtype=torch.float32)
    for name, logits in output.logits.items():
        alone = len(output.logits) == 1 and name == "mm"
        weight = torch.ones_like(labels) if alone else counted[:, BRANCHES.index(name)]
        losses = F.cross_entropy(logits, labels, reduction="none")
        total = total + (weight * losses).sum() / weight.sum().clamp_min(1)
    return total


def evidence_for(output: Output) -> dict[str, np.ndarray]:
    """Log odds (B,) of entailment by branch: 0 where the probability is one half."""
    return {
        name: (logits[:, 1] - logits[:, 0]).detach().cpu().numpy()
        for name, logits in output.logits.items()
    }


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
