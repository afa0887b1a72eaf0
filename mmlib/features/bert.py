"""BERT as an encoder of phrases and sentences, tuned by P-Tuning v2, in part, in full, or not.

P-Tuning v2 (Liu et al., ACL 2022), used by CORA (Pham et al., CVPR 2024), puts N learnable keys and
values in front of every layer's own. BERT reads them as a cache of N earlier positions, so
transformers' `DynamicCache` carries them and no attention is rewritten here. peft's prefix tuning
goes the same way, but always shifts the position ids by N (tokens meet position embeddings they
were not trained with, and N positions are lost), freezes BERT's last layer and has no N = 0.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import trange

from mmlib.core.errors import DataError
from mmlib.core.records import canonical

if TYPE_CHECKING:  # transformers takes seconds to import: only where a BERT is used
    from transformers import BertModel, PreTrainedTokenizerBase

TUNINGS = ("ptuning", "frozen", "full", "last")
PRETRAINED_RATE = 0.1  # CORA, supplement: pretrained parts learn at a tenth of the rate
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
INPUTS = tuple(f"bert/{name}" for name in MODEL_FILES)  # of a user's BERT, below the data folder


class BertEncoder(nn.Module):
    r"""A BERT whose token states, or their mean, stand for a phrase (CORA).

    tuning: what learns. "ptuning": a prefix of N keys and values at every layer and the last
        layer; "last": the last layer; "full": everything; "frozen": nothing, and dropout stays off
        even in training.

    With P-Tuning each head of layer l computes, the prefix being seen from every position,

        softmax(Q [P^K_l; K]^T / sqrt(d)) [P^V_l; V].
    """

    def __init__(
        self,
        model: "BertModel",
        tuning: str = "ptuning",
        prefix: int = 24,
        tokenizer: "PreTrainedTokenizerBase | None" = None,
    ):
        """Wrap `model`, which loses its pooler and whose parameters are frozen as `tuning` says.

        prefix: N, read by "ptuning" only; N = 0 is "last". Drawn from torch's generator with the
            deviation of BERT's own start: the unit deviation of P-Tuning v2's code makes phrases
            start more alike.
        tokenizer: needed by `token_states_all` only.

        Raises ValueError: an unknown tuning, a negative prefix, a tokenizer of another vocabulary.
        """
        super().__init__()
        config = model.config
        if tuning not in TUNINGS or prefix < 0:
            raise ValueError(f"tuning {tuning!r}, prefix {prefix}: use {TUNINGS} and N >= 0")
        if tokenizer is not None and len(tokenizer) > config.vocab_size:
            raise ValueError(
                f"the tokenizer has {len(tokenizer)} words, the model {config.vocab_size}: "
                "take both from one folder"
            )
        self.bert, self.tuning, self.tokenizer = model, tuning, tokenizer
        self.bert.pooler = None
        self.bert.requires_grad_(tuning == "full")
        if tuning in ("ptuning", "last"):
            self.bert.encoder.layer[-1].requires_grad_(True)
        self.prefix = None
        if tuning == "ptuning" and prefix:  # (layers, keys and values, heads, N, width of a head)
            heads = config.num_attention_heads
            shape = (config.num_hidden_layers, 2, heads, prefix, config.hidden_size // heads)
            values = model.embeddings.word_embeddings.weight.new_empty(shape)
            self.prefix = nn.Parameter(nn.init.normal_(values, std=config.initializer_range))
        self.train(self.training)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, tuning: str = "ptuning", prefix: int = 24
    ) -> "BertEncoder":
        """The BERT in a folder: config.json, model.safetensors (as float32) and tokenizer.json.

        Nothing is downloaded. Raises DataError: a missing folder or file, another architecture than
        BERT, weights that do not fill the model.
        """
        folder = Path(folder).expanduser()
        check_files(folder)
        from transformers import AutoConfig, BertModel, PreTrainedTokenizerFast
        from transformers.utils import logging

        local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
        # It warns of the heads that are in the file and not wanted here, and shows its loading.
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            config = AutoConfig.from_pretrained(folder, **local)
            if config.model_type != "bert":
                kind = f"a model of type {config.model_type!r}, not a BERT"
                raise DataError(f"{folder}: {kind} (name a BERT, such as bert-base-uncased)")
            # Not BertTokenizer, which takes lower-casing from elsewhere, or from a default.
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
            loaded: Any = BertModel.from_pretrained(
                folder, config=config, add_pooling_layer=False, use_safetensors=True,
                output_loading_info=True, **local,
            )  # fmt: skip
            model, report = loaded
            if missing := report["missing_keys"]:  # transformers fills these with random numbers
                names = f"{min(missing)} and {len(missing) - 1} more"
                raise DataError(f"{folder}: no weights for {names} (is this another model's file?)")
            return cls(model.float(), tuning, prefix, tokenizer)
        except DataError:
            raise
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise DataError(
                f"{folder}: cannot be read as a BERT: {reason} (get it again)"
            ) from error
        finally:
            logging.set_verbosity(level)
            if bar:
                logging.enable_progress_bar()

    @property
    def width(self) -> int:
        """Values a token state has."""
        return self.bert.config.hidden_size

    def train(self, mode: bool = True) -> "BertEncoder":
        """Set training mode; a frozen BERT stays in evaluation mode."""
        super().train(mode)
        if self.tuning == "frozen":
            self.bert.eval()
        return self

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Ids (B, L) int64 and mask (B, L), 1 at tokens -> states (B, L, width) of the last layer.

        States at padding are of no meaning. Raises ValueError for an L beyond BERT's positions.
        """
        positions = self.bert.config.max_position_embeddings
        if ids.shape[1] > positions:
            raise ValueError(f"{ids.shape[1]} tokens, but this BERT knows {positions} positions")
        earlier = None
        if self.prefix is not None:  # what BERT takes for keys and values of earlier positions
            from transformers import DynamicCache

            mask = torch.cat([mask.new_ones(len(mask), self.prefix.shape[-2]), mask], dim=1)
            earlier, rows = DynamicCache(), (len(ids), -1, -1, -1)
            for layer, (keys, values) in enumerate(self.prefix.unsqueeze(2)):
                earlier.update(keys.expand(rows), values.expand(rows), layer)
        # Positions are given, as BERT would else count on from the prefix.
        position_ids = torch.arange(ids.shape[1], device=ids.device)[None]
        return self.bert(
            input_ids=ids, attention_mask=mask, past_key_values=earlier, position_ids=position_ids
        ).last_hidden_state

    @staticmethod
    def pool(states: Tensor, mask: Tensor) -> Tensor:
        """Mean state (B, width) over the tokens of states (B, L, width), [CLS] and [SEP] included.

        A row without tokens gives zeros.
        """
        weights = mask.to(states.dtype)[..., None]
        return (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)

    def parameter_groups(self, base_rate: float) -> list[dict[str, Any]]:
        """What learns, for an optimiser: the prefix at `base_rate`, pretrained parts at a tenth."""
        pretrained = [p for p in self.bert.parameters() if p.requires_grad]
        groups = [{"params": pretrained, "lr": base_rate * PRETRAINED_RATE}] if pretrained else []
        if self.prefix is not None:
            groups.append({"params": [self.prefix], "lr": base_rate})
        return groups

    @torch.inference_mode()
    def token_states_all(
        self,
        texts: Sequence[str],
        max_tokens: int | None = None,
        batch: int = 64,
        progress: str | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Token states of every text, computed in evaluation mode.

        Returns states (tokens, width) float16 of all texts after one another, and how many tokens
        each text has, (texts,) int64; [CLS] and [SEP] are left out.
        max_tokens: tokens of a text that are read, those two too; None for as many as BERT has
        positions. batch: texts at a time, which are of like length. progress: a title for the
        progress bar; None for no bar.
        """
        if self.tokenizer is None:
            raise ValueError("this encoder has no tokenizer: give BertEncoder one")
        positions = self.bert.config.max_position_embeddings
        longest = min(max_tokens or positions, positions)
        read = self.tokenizer([*map(canonical, texts)] or [""], truncation=True, max_length=longest)
        pieces = [torch.tensor(row, dtype=torch.int64) for row in read["input_ids"][: len(texts)]]
        lengths = np.array([len(row) - 2 for row in pieces], dtype=np.int64)
        ends = np.cumsum(lengths)
        states = np.empty((int(lengths.sum()), self.width), dtype=np.float16)
        order = np.argsort(-lengths, kind="stable")
        device, was_training = next(self.bert.parameters()).device, self.training
        self.eval()
        try:
            for start in trange(0, len(order), batch, desc=progress, disable=progress is None):
                rows = order[start : start + batch]
                ids = pad_sequence([pieces[i] for i in rows], batch_first=True).to(device)
                mask = torch.arange(ids.shape[1]) < torch.from_numpy(lengths[rows])[:, None] + 2
                hidden = self(ids, mask.long().to(device))  # which alone says what is padding
                for row, of_text in zip(rows, hidden.half().cpu().numpy(), strict=True):
                    states[ends[row] - lengths[row] : ends[row]] = of_text[1 : lengths[row] + 1]
        finally:
            self.train(was_training)
        return states, lengths


def check_files(folder: Path) -> None:
    """Raise a DataError, with the mend, for a folder that lacks one of MODEL_FILES."""
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder (name a folder with a BERT)")
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    mend = "put all files of the model there"
    if "model.safetensors" in missing and (folder / "pytorch_model.bin").is_file():
        mend = "pytorch_model.bin is a pickle, which is never opened: get the safetensors file"
    if missing:
        raise DataError(f"{folder}: lacks {', '.join(missing)} ({mend})")
