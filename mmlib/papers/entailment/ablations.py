"""Table 3's other classifiers: with one branch, one text encoder, a sigmoid, or a single stream."""

from collections.abc import Callable

from torch import Tensor, nn
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


class OneBranch(Classifier):
    """A classifier of which a subclass builds the one branch and reads its state."""

    def __init__(
        self, vocabulary: int, region_width: int, regions: int, settings: Settings,
        states: Tensor | None = None, head: Callable[[int], Head] = Head,
    ):  # fmt: skip
        nn.Module.__init__(self)
        self.settings = settings
        self.longest = settings.max_premise + settings.max_hypothesis + 3
        self.build(vocabulary, region_width, regions, states)
        self.add_heads(head)

    def build(self, vocabulary: int, width: int, regions: int, states: Tensor | None) -> None:
        """Add the branch's encoders."""
        raise NotImplementedError


class OnlyTE(OneBranch):
    """The text branch alone."""

    branches = ("te",)

    def build(self, vocabulary: int, width: int, regions: int, states: Tensor | None) -> None:
        """TE's BERT."""
        self.add_text_branch(vocabulary, states)

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """h_te (B, D)."""
        return {"te": self.where_counted(batch, (0, 2), self.text_state)}


class OnlyVE(OneBranch):
    """The image branch alone."""

    branches = ("ve",)

    def build(self, vocabulary: int, width: int, regions: int, states: Tensor | None) -> None:
        """VE's encoders."""
        self.add_image_branch(vocabulary, width, regions)

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """h_ve (B, D)."""
        return {"ve": self.where_counted(batch, (1, 2), self.image_state)}


class Stream(OneBranch):
    """One transformer over words and regions, in OFA's place. Every sample counts for its loss."""

    branches = ("mm",)

    def build(self, vocabulary: int, width: int, regions: int, states: Tensor | None) -> None:
        """The stream."""
        self.stream = SingleStream(vocabulary, width, regions, self.longest, self.settings)

    def branch_states(self, batch: Batch) -> dict[str, Tensor]:
        """[CLS]'s state (B, D) over both texts and the regions."""
        return {"mm": self.stream(batch.pair, batch.pair_mask, batch.pair_type, batch.images)}


class SharedText(Classifier):
    """TE by VE's text layers in place of a BERT of its own (w/o BERT)."""

    def add_text_branch(self, vocabulary: int, states: Tensor | None) -> None:
        """Nothing is added."""

    def text_state(self, batch: Batch) -> Tensor:
        """h_te (B, D)."""
        out = self.words(
            input_ids=batch.pair, attention_mask=batch.pair_mask, token_type_ids=batch.pair_type
        )
        return out.last_hidden_state[:, 0]


CLASSES: dict[str, type[Classifier]] = {
    "both": Classifier, "te": OnlyTE, "ve": OnlyVE, "single": Stream,
}  # fmt: skip


def classifier(
    vocabulary: int, region_width: int, regions: int, settings: Settings,
    states: Tensor | None = None,
) -> Classifier:  # fmt: skip
    """A classifier with fresh weights, as settings ask for; arguments as of `Classifier`.

    Raises ValueError for shared text layers where there is no image branch to share them with.
    """
    kind = CLASSES[settings.model]
    if settings.text == "shared":
        if settings.model != "both":
            raise ValueError(f"text layers are shared by two branches, not by {settings.model!r}")
        kind = SharedText
    head = SigmoidHead if settings.output == "sigmoid" else Head
    return kind(vocabulary, region_width, regions, settings, states, head)
