"""Models with a state in place of a cache, by the sizes of their configs; what was published of each."""

from functools import cache

from strata.workload.mixer import Mixer
from strata.workload.model import Model, Pattern, pattern_of

NEMOTRON = {"M": ("linear", "none"), "E": ("none", "moe"), "*": ("full", "none"), "-": ("none", "dense")}


def layers(count, full, ffn="moe"):
    """Attention in some layers, a state in the others."""
    return pattern_of([("full" if i in full else "linear", ffn) for i in range(count)])


def nemotron_3_nano():  # config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16
    order = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
    return Model(
        "nemotron-3-nano", pattern_of([NEMOTRON[c] for c in order]), hidden=2688.0, heads=32.0, kv_heads=2.0,
        head_dim=128.0, v_head_dim=128.0, vocab=131072.0, experts=128.0, top_k=6.0, expert_ffn=1856.0,
        shared_ffn=3712.0, shared_experts=True, gated=False, router_bias=True,
        mixer=Mixer(
            kind="mamba2", heads=64.0, value_dim=64.0, key_dim=128.0, key_heads=8.0, conv_bias=True, chunk=128.0
        ),
    )  # fmt: skip


def jamba_mini():  # config.json of ai21labs/AI21-Jamba-1.5-Mini
    kinds = [("full" if i % 8 == 4 else "linear", "moe" if i % 2 else "dense") for i in range(32)]
    return Model(
        "jamba-1.5-mini", pattern_of(kinds), hidden=4096.0, heads=32.0, kv_heads=8.0, head_dim=128.0,
        v_head_dim=128.0, vocab=65536.0, ffn=14336.0, experts=16.0, top_k=2.0, expert_ffn=14336.0,
        mixer=Mixer(
            kind="mamba1", heads=8192.0, key_dim=16.0, rank=256.0, conv_bias=True, norm=False, inner_norms=True
        ),
    )  # fmt: skip


def qwen3_next():  # config.json of Qwen/Qwen3-Next-80B-A3B-Instruct
    return Model(
        "qwen3-next-80b-a3b", layers(48, range(3, 48, 4)), hidden=2048.0, heads=16.0, kv_heads=2.0, head_dim=256.0,
        v_head_dim=256.0, vocab=151936.0, experts=512.0, top_k=10.0, expert_ffn=512.0, shared_ffn=512.0,
        shared_experts=True, shared_gate=True, output_gate=True, qk_norm=True,
        mixer=Mixer(kind="gated_delta", heads=32.0, key_heads=16.0, key_dim=128.0, value_dim=128.0),
    )  # fmt: skip


def kimi_linear():  # config.json of moonshotai/Kimi-Linear-48B-A3B-Instruct
    full = (4, 8, 12, 16, 20, 24, 27)
    kinds = [("full" if i in full else "linear", "dense" if i == 1 else "moe") for i in range(1, 28)]
    return Model(
        "kimi-linear-48b-a3b", pattern_of(kinds), hidden=2304.0, heads=32.0, kv_heads=32.0, head_dim=192.0,
        v_head_dim=128.0, vocab=163840.0, ffn=9216.0, attention="mla", kv_rank=512.0, rope_dim=64.0,
        direct_queries=True, experts=256.0, top_k=8.0, expert_ffn=1024.0, shared_ffn=1024.0, shared_experts=True,
        router_bias=True,
        mixer=Mixer(kind="kda", heads=32.0, key_heads=32.0, key_dim=128.0, value_dim=128.0, rank=128.0),
    )  # fmt: skip


def falcon_h1():  # config.json of tiiuae/Falcon-H1-34B-Instruct
    return Model(
        "falcon-h1-34b", Pattern((), 0.0, (("parallel", "dense"),), 72.0), hidden=5120.0, heads=20.0, kv_heads=4.0,
        head_dim=128.0, v_head_dim=128.0, vocab=261120.0, ffn=21504.0,
        mixer=Mixer(
            kind="mamba2", heads=32.0, value_dim=128.0, key_dim=256.0, key_heads=2.0, conv_bias=True, norm=False,
            chunk=128.0,
        ),
    )  # fmt: skip


def minimax_text():  # config.json of MiniMaxAI/MiniMax-Text-01
    return Model(
        "minimax-text-01", layers(80, range(7, 80, 8)), hidden=6144.0, heads=64.0, kv_heads=8.0, head_dim=128.0,
        v_head_dim=128.0, vocab=200064.0, experts=32.0, top_k=2.0, expert_ffn=9216.0,
        mixer=Mixer(
            kind="lightning", heads=64.0, key_heads=64.0, key_dim=128.0, value_dim=128.0, chunk=256.0
        ),
    )  # fmt: skip


def mamba2():  # config.json of state-spaces/mamba2-2.7b; its vocabulary is padded to a multiple of 16
    return Model(
        "mamba2-2.7b", Pattern((), 0.0, (("linear", "none"),), 64.0), hidden=2560.0, heads=0.0, kv_heads=0.0,
        head_dim=0.0, vocab=50288.0, tied=True,
        mixer=Mixer(kind="mamba2", heads=80.0, value_dim=64.0, key_dim=128.0, conv_bias=True, chunk=256.0),
    )  # fmt: skip


def bamba():  # config.json of ibm-ai-platform/Bamba-9B-v1
    return Model(
        "bamba-9b", layers(32, (9, 18, 27), "dense"), hidden=4096.0, heads=32.0, kv_heads=8.0, head_dim=128.0,
        v_head_dim=128.0, vocab=128256.0, ffn=14336.0,
        mixer=Mixer(kind="mamba2", heads=128.0, value_dim=64.0, key_dim=128.0, conv_bias=True, chunk=256.0),
    )  # fmt: skip


def granite_4_h():  # config.json of ibm-granite/granite-4.0-h-small
    return Model(
        "granite-4.0-h-small", layers(40, (5, 15, 25, 35)), hidden=4096.0, heads=32.0, kv_heads=8.0, head_dim=128.0,
        v_head_dim=128.0, vocab=100352.0, tied=True, experts=72.0, top_k=10.0, expert_ffn=768.0, shared_ffn=1536.0,
        shared_experts=True,
        mixer=Mixer(kind="mamba2", heads=128.0, value_dim=64.0, key_dim=128.0, conv_bias=True, chunk=256.0),
    )  # fmt: skip


# parameters by the model's page on the Hub (in the weights), and those a token uses where they are published
PUBLISHED = {
    nemotron_3_nano: (31.6e9, 3.6e9),  # Nemotron 3 Nano report, table 1: 3.6B with embeddings, 3.2B without
    jamba_mini: (51.6e9, 12e9),
    qwen3_next: (79.7e9, 3.9e9),  # "80B total, 3B activated"; 3.9B with embedding and head
    kimi_linear: (49.1e9, 3.5e9),
    falcon_h1: (33.6e9, 33.6e9),
    minimax_text: (
        456.1e9,
        48.4e9,
    ),  # "456 billion total, 45.9 billion activated", without the embeddings' 2.5
    mamba2: (2.7e9, 2.7e9),
    bamba: (9.78e9, 9.78e9),
    granite_4_h: (32.2e9, 8.8e9),  # "32B total, 9B active"
}
HYBRIDS = {make.__name__: cache(make) for make in PUBLISHED}
