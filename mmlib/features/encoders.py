"""Small transformers over words and regions, and two of them that meet in a dot product."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mmlib.features.words import CLS, PAD

if TYPE_CHECKING:
    from transformers import BertModel

BLOCK = 256  # items that are encoded together


@dataclass(frozen=True)
class Shape:
    """Sizes of transformers; the defaults are BERT-base's and ALBEF's.

    width, heads: D and the attention heads of all. text_layers: of a BERT over packed texts;
    image_layers, words_layers, cross_layers: over regions, over words, and over words that also
    attend to regions.
    """

    width: int = 768
    heads: int = 12
    text_layers: int = 12
    image_layers: int = 12
    words_layers: int = 6
    cross_layers: int = 6
    dropout: float = 0.1


def _config(settings: Shape, layers: int, vocabulary: int, positions: int, **options: Any) -> Any:
    from transformers import BertConfig

    return BertConfig(  # type: ignore[call-arg]
        vocab_size=vocabulary, hidden_size=settings.width, num_hidden_layers=layers,
        num_attention_heads=settings.heads, intermediate_size=4 * settings.width,
        max_position_embeddings=positions, hidden_dropout_prob=settings.dropout,
        attention_probs_dropout_prob=settings.dropout, pad_token_id=PAD,
        **{"attn_implementation": "eager", **options},
    )  # fmt: skip


def small_bert(
    settings: Shape, layers: int, vocabulary: int, positions: int, returns_attention: bool = False
) -> "BertModel":
    """A BERT of the settings' width with fresh weights and no pooler.

    returns_attention: whether it can return its attention weights, which makes it slower.
    """
    from transformers import BertModel

    attention = "eager" if returns_attention else "sdpa"
    config = _config(settings, layers, vocabulary, positions, attn_implementation=attention)
    return BertModel(config, add_pooling_layer=False)


def region_scale(features: np.ndarray) -> np.ndarray:
    """(2, W): mean and standard deviation of each dimension over (a sample of) all regions."""
    sample = np.asarray(features[:: max(1, len(features) // 3000)], dtype=np.float32)
    return np.stack([sample.mean(axis=(0, 1)), sample.std(axis=(0, 1)) + 1e-3])


def standardised(tables: Sequence[np.ndarray], scale: np.ndarray) -> np.ndarray:
    """Tables of features (images, R, W), concatenated and standardised by `region_scale`."""
    table = np.concatenate(tables, dtype=np.float32)  # the only copy: it may be 9 GB
    return np.divide(np.subtract(table, scale[0], out=table), scale[1], out=table)


class ImageEncoder(nn.Module):
    """A transformer over an image's regions with [CLS] in front, as a ViT over patches."""

    def __init__(self, region_width: int, regions: int, settings: Shape):
        super().__init__()
        self.project = nn.Linear(region_width, settings.width)
        self.first = nn.Parameter(0.02 * torch.randn(settings.width))
        self.layers = small_bert(settings, settings.image_layers, 1, regions + 1, True)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (B, R, W) -> states (B, 1 + R, D), and [CLS]'s attention to regions (B, R).

        The attention is the last layer's, the mean over its heads, and adds up to less than 1, as
        [CLS] attends to itself too.
        """
        inputs = [self.first.expand(len(images), 1, -1), self.project(images)]
        out = self.layers(inputs_embeds=torch.cat(inputs, dim=1), output_attentions=True)
        return out.last_hidden_state, out.attentions[-1][:, :, 0, 1:].mean(dim=1)


class CrossEncoder(nn.Module):
    """Transformer layers in which words attend to words and then to the image (ALBEF's shape)."""

    def __init__(self, settings: Shape):
        super().__init__()
        from transformers.models.bert.modeling_bert import BertLayer

        config = _config(settings, 1, 1, 1, is_decoder=True, add_cross_attention=True)
        self.layers = nn.ModuleList(
            BertLayer(config, layer_idx=i) for i in range(settings.cross_layers)
        )

    def forward(self, words: Tensor, mask: Tensor, image: Tensor) -> Tensor:
        """States of words (B, L, D), mask (B, L) bool, image states (B, 1 + R, D) -> (B, L, D).

        transformers calls such a layer a decoder's, but with this mask each word attends to all.
        """
        hidden = torch.zeros(mask.shape, dtype=words.dtype, device=words.device).masked_fill(
            ~mask, torch.finfo(words.dtype).min
        )[:, None, None]
        for layer in self.layers:
            words = layer(words, attention_mask=hidden, encoder_hidden_states=image)
        return words


def only_first(layer: nn.Module) -> None:
    """Let a BERT layer compute [CLS]'s state alone, (B, 1, D), where no other one is read.

    Its self-attention still attends to all tokens, so that state is the same; the rest, most of the
    layer's work, is done for one token.
    """

    def first(attention: nn.Module, inputs: tuple, output: tuple) -> tuple:
        return (output[0][:, :1], *output[1:])

    layer.attention.register_forward_hook(first)  # type: ignore[union-attr, operator]


def mimetic(bert: "BertModel", gain: float = 1.0, marks: float = 0.5) -> None:
    """Initialise a BERT so that tokens attend to similar tokens from the start.

    Queries equal keys, and values times the output map are −1 (Trockman and Kolter, Mimetic
    Initialization, ICML 2023): a layer subtracts from a token the mean of those like it. The
    embeddings of the two text types (of deviation `marks`) are not lost beside words. From BERT's
    usual initialisation, small models spend most of a short training on learning that equal words
    have to do with each other.
    """
    layers: Any = bert.encoder.layer
    with torch.no_grad():
        for layer in layers:
            attention = layer.attention.self
            nn.init.orthogonal_(attention.query.weight, gain)
            attention.key.weight.copy_(attention.query.weight)
            nn.init.eye_(attention.value.weight)
            layer.attention.output.dense.weight.copy_(-attention.value.weight)
        bert.embeddings.token_type_embeddings.weight.normal_(0, marks)


class SingleStream(nn.Module):
    """One transformer over [CLS] premise [SEP] hypothesis [SEP] and the regions after them."""

    def __init__(
        self, vocabulary: int, region_width: int, regions: int, positions: int, settings: Shape
    ):
        super().__init__()
        self.project = nn.Linear(region_width, settings.width)
        layers = settings.words_layers + settings.cross_layers
        self.layers = small_bert(settings, layers, vocabulary, positions + regions)
        only_first(self.layers.encoder.layer[-1])

    def forward(self, ids: Tensor, mask: Tensor, kinds: Tensor, images: Tensor) -> Tensor:
        """Ids, mask and kinds (B, L) of packed texts, regions (B, R, W) -> [CLS]'s state (B, D)."""
        words = self.layers.embeddings.word_embeddings(ids)
        regions = self.project(images)
        ones = mask.new_ones(regions.shape[:2])
        mask, kinds = (torch.cat([of_text, ones], dim=1) for of_text in (mask, kinds))
        # Regions have the last positions, however long the texts are.
        last = self.layers.config.max_position_embeddings
        positions = [*range(words.shape[1]), *range(last - regions.shape[1], last)]
        out = self.layers(
            inputs_embeds=torch.cat([words, regions], dim=1),
            attention_mask=mask,
            token_type_ids=kinds,
            position_ids=torch.tensor([positions], device=words.device),
        )
        return out.last_hidden_state[:, 0]


def in_batch_softmax(logits: Tensor, same: Tensor) -> Tensor:
    """CLIP's loss: the mean of the cross-entropies over rows and over columns of a batch.

    logits (B, B): image i with text j, scaled. same (B, B) bool, A: further pairs that belong
    together, which are left out of the negatives.
    """
    exempt = same & ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    masked = logits.masked_fill(exempt, -torch.inf)
    labels = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(masked, labels) + F.cross_entropy(masked.T, labels)) / 2


@dataclass(frozen=True)
class Sizes:
    """Sizes of a retriever: its transformers' (`Shape`), vocabulary, regions, shared space."""

    vocabulary: int
    region_width: int
    regions: int
    words: int = 40
    space: int = 64


def with_cls(ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Token ids (B, L) of `lengths` -> [CLS] and the ids (B, 1 + L), and their mask."""
    position = torch.arange(ids.shape[1] + 1, device=ids.device)
    mask = (position <= lengths[:, None].to(ids.device)).long()
    return torch.cat([ids.new_full((len(ids), 1), CLS), ids], dim=1), mask


class DualEncoder(nn.Module):
    """Two encoders and a dot product: symmetric in-batch softmax with a learnt scale (CLIP).

    alone: compute [CLS]'s states alone, (B, 1, D), where nothing reads those of words and regions.
    """

    def __init__(self, sizes: Sizes, settings: Shape, alone: bool = False):
        super().__init__()
        self.image = ImageEncoder(sizes.region_width, sizes.regions, settings)
        self.words = small_bert(settings, settings.words_layers, sizes.vocabulary, sizes.words + 1)
        for encoder in (self.image.layers, self.words) if alone else ():
            only_first(encoder.encoder.layer[-1])
        self.to_image = nn.Linear(settings.width, sizes.space)
        self.to_text = nn.Linear(settings.width, sizes.space)
        self.log_scale = nn.Parameter(torch.tensor(1 / 0.07).log())

    def image_states(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Regions (B, R, W) -> states (B, 1 + R, D) or (B, 1, D), unit vectors (B, space)."""
        states, _ = self.image(images)
        return states, F.normalize(self.to_image(states[:, 0]), dim=1)

    def text_states(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, L), lengths (B,) -> states, as above, mask (B, 1 + L), unit vectors."""
        tokens, mask = with_cls(ids, lengths)
        states = self.words(input_ids=tokens, attention_mask=mask).last_hidden_state
        return states, mask, F.normalize(self.to_text(states[:, 0]), dim=1)

    def similarities(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scaled cosines (images, texts) of unit vectors; CLIP keeps the scale below 100."""
        return self.log_scale.exp().clamp(max=100) * images @ texts.T

    def loss(self, images: Tensor, ids: Tensor, lengths: Tensor, same: Tensor) -> Tensor:
        """In-batch softmax; entailed pairs (`same`, off the diagonal) are no negatives."""
        _, left = self.image_states(images)
        *_, right = self.text_states(ids, lengths)
        return in_batch_softmax(self.similarities(left, right), same)

    @torch.no_grad()
    def rank(self, images: Tensor, ids: Tensor, lengths: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Scores (images, texts) for ranking texts by image, and images by text: here one."""
        self.eval()
        left = torch.cat([self.image_states(block)[1] for block in images.split(BLOCK)])
        blocks = zip(ids.split(BLOCK), lengths.split(BLOCK), strict=True)
        right = torch.cat([self.text_states(*block)[2] for block in blocks])
        scores = (left @ right.T).cpu().numpy()
        return scores, scores
