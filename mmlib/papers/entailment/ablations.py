"""Table 3's other classifiers: with one branch, one text encoder, a sigmoid, or a single stream."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from mmlib.features.encoders import SingleStream
from mmlib.papers.entailment.method import Batch, Classifier, Head
from mmlib.papers.entailment.systems import Settings


class SigmoidHead(Head):
    """One logit, returned as (0, logit), which softmax turns into its sigmoid."""

    def __init__(self, width: int):
        super().__init__(width, classes=1)

    def forward(self, state: Tensor) -> Tensor:
        """States (B, D) -> logits (B, 2)."""
        return F.pad(self.layers(state), (1, 0))


def _nothing(self: Classifier, *sizes: Any, **named: Any) -> None:
    """In the place of what adds a part that a classifier does without."""


class SharedText(Classifier):
    """TE by VE's text layers in place of a BERT of its own (w/o BERT)."""

    add_text_branch = _nothing

    def text_state(self, batch: Batch) -> Tensor:
        """h_te (B, D)."""
        out = self.words(
            input_ids=batch.pair, attention_mask=batch.pair_mask, token_type_ids=batch.pair_type
        )
        return out.last_hidden_state[:, 0]


class OnlyTE(Classifier):
    """The text branch alone."""

    branches = ("te",)
    add_image_branch = add_gate = _nothing

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """h_te (B, D)."""
        return {"te": self.where_counted(batch, (0, 2), self.text_state)}


class OnlyVE(Classifier):
    """The image branch alone."""

    branches = ("ve",)
    add_text_branch = add_gate = _nothing

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """h_ve (B, D)."""
        return {"ve": self.where_counted(batch, (1, 2), self.image_state)}


class Stream(Classifier):
    """One transformer over words and regions, in OFA's place. Every sample counts for its loss."""

    branches = ("mm",)
    add_text_branch = add_gate = _nothing

    def add_image_branch(self, vocabulary: int, region_width: int, regions: int) -> None:
        """The stream, which reads the image too."""
        self.stream = SingleStream(vocabulary, region_width, regions, self.longest, self.settings)

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """[CLS]'s state (B, D) over both texts and the regions."""
        return {"mm": self.stream(batch.pair, batch.pair_mask, batch.pair_type, batch.images)}


CLASSES: dict[tuple[str, str], type[Classifier]] = {
    ("both", "own"): Classifier, ("both", "shared"): SharedText, ("te", "own"): OnlyTE,
    ("ve", "own"): OnlyVE, ("single", "own"): Stream,
}  # fmt: skip


def classifier(
    vocabulary: int, region_width: int, regions: int, settings: Settings,
    states: Tensor | None = None,
) -> Classifier:  # fmt: skip
    """A classifier with fresh weights, as settings ask for; arguments as of `Classifier`.

    Raises KeyError for shared text layers where there is no image branch to share them with.
    """
    kind = CLASSES[settings.model, settings.text]
    head = SigmoidHead if settings.output == "sigmoid" else Head
    return kind(vocabulary, region_width, regions, settings, states, head)
