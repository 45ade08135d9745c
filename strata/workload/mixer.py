"""Mixers that keep a state of fixed size in place of a cache: state-space layers and linear attention."""

from __future__ import annotations

from strata.base.arrays import Number
from strata.base.errors import UnknownName
from strata.base.precision import bytes_of
from strata.base.records import readable
from strata.params import record

# How a state passes from token to token: channels that decay by themselves, decay and an outer product, or
# the delta rule, which also takes out what the state knows of a key already.
CHANNEL, DECAY, DELTA = "channel", "decay", "delta"
RULES_OF_STATES = {"mamba1": CHANNEL, "mamba2": DECAY, "lightning": DECAY, "gated_delta": DELTA, "kda": DELTA}


@readable("kind", "heads", "key_heads", "key_dim", "value_dim", "state")
@record
class Mixer:
    """Sizes of layers whose memory is a state: `heads` matrices of `key_dim` x `value_dim` for each sequence.

    mamba1: heads are channels (value_dim 1), key_dim is d_state, rank that of dt; B and C are shared by all.
    mamba2: head_dim is value_dim, d_state key_dim, n_groups key_heads. gated_delta (Qwen3-Next): value heads
    are heads. kda (Kimi Linear): decays of every row of a state, from a product of rank `rank`, as the output
    gate unless `full_rank_gate`. lightning (MiniMax): decays that are not learned, no convolution.
    """

    kind: str
    heads: Number  # that keep a state each
    key_dim: Number  # rows of a state
    value_dim: Number = 1.0  # columns of a state
    key_heads: Number = 1.0  # heads of queries and keys; each serves heads / key_heads states
    conv: Number = 4.0  # width of the short convolution
    rank: Number = 0.0
    chunk: Number = 64.0  # tokens of a prompt that are worked on at once
    bias: bool = False  # of the projections
    conv_bias: bool = False
    norm: bool = True  # results are normed where they meet their gate
    head_norm: bool = False  # by weights that all heads share
    inner_norms: bool = False  # mamba1: norms of dt, B and C (Jamba)
    full_rank_gate: bool = False
    state: str = "fp32"  # format of the state between steps

    def __post_init__(self) -> None:
        if self.kind not in RULES_OF_STATES:
            raise UnknownName("kind of mixer", self.kind, list(RULES_OF_STATES), ", ".join(RULES_OF_STATES))

    @property
    def rule(self) -> str:
        return RULES_OF_STATES[self.kind]

    @property
    def convolves(self) -> bool:
        return self.kind != "lightning"

    @property
    def channels(self) -> Number:
        """Channels of the short convolution: values, and queries and keys where they come from a projection
        of all tokens.
        """
        values = self.heads * self.value_dim
        return values if self.kind == "mamba1" else values + 2.0 * self.key_heads * self.key_dim

    def state_bytes(self, activation: str = "bf16") -> Number:
        r"""Bytes that one layer keeps of a sequence, whatever its length.

        .. math:: M = h \, d_k d_v \, b_s + (w - 1) \, c \, b_a

        heads h with a state of d_k x d_v in b_s bytes; the last w - 1 inputs of the c channels of the short
        convolution, in b_a bytes.

        Gu & Dao, Mamba, arXiv 2312.00752, sec. 3.5: the state stands for all tokens before; vLLM keeps both
        parts so (vllm/model_executor/layers/mamba/mamba_utils.py).

        >>> qwen3_next = Mixer(kind="gated_delta", heads=32.0, key_heads=16.0, key_dim=128.0, value_dim=128.0)
        >>> qwen3_next.state_bytes()  # 2 MiB of states, 48 KiB of inputs
        2146304.0
        """
        kept = (self.conv - 1.0) * self.channels * bytes_of(activation) if self.convolves else 0.0
        return self.heads * self.key_dim * self.value_dim * bytes_of(self.state) + kept
