"""Configs from outside: every wrong one is one line, every right one a model; windows, names and formats."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hy

import strata as st
from strata.adapters.huggingface.config import reading
from strata.adapters.huggingface.names import NotModelled, hub_name
from strata.base.errors import BadFile, StrataError, UnknownName
from strata.params import data_folder, names

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8, "vocab_size": 100,
    "num_key_value_heads": 2, "intermediate_size": 128,
}  # fmt: skip
EXPERTS = LLAMA | {
    "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "decoder_sparse_step": 1, "mlp_only_layers": [],
}  # fmt: skip
LATENT = EXPERTS | {
    "model_type": "deepseek_v3", "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1, "moe_layer_freq": 1, "n_group": 2,
    "topk_group": 1, "n_shared_experts": 1,
}  # fmt: skip


def kinds(config):
    made = reading(config, "t").model.pattern
    rest = [made.period[i % len(made.period)][0] for i in range(int(made.layers - made.prefix_layers))]
    return [made.prefix[0]] * int(made.prefix_layers) + rest if made.prefix else rest


def refused(config):
    with pytest.raises(StrataError) as error:
        st.model(config)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": 1e9}, "'num_hidden_layers' must be a whole number from 1 to 10,000"),
        ({"num_hidden_layers": 10**400}, "a number of 1329 bits"),
        ({"hidden_size": 64.5}, "but got 64.5"),
        ({"hidden_size": "64"}, "but got '64'"),
        ({"hidden_size": True}, "but got True"),
        ({"hidden_size": math.inf}, "but got inf"),
        ({"hidden_size": math.nan}, "but got nan"),
        ({"strange_scale": math.inf}, "'strange_scale' must be finite"),
        ({"num_key_value_heads": 3}, "num_key_value_heads must divide num_attention_heads"),
        ({"hidden_size": 65}, "num_attention_heads must divide hidden_size"),
        ({"tie_word_embeddings": "yes"}, "'tie_word_embeddings' must be true or false"),
        ({"layer_types": ["full_attention"] * 3}, "one entry for each layer, but got (entries=3, layers=4)"),
        ({"layer_types": ["full_attention", "warped"] * 2}, "but got (layer_types='warped')"),
        ({"layer_types": ["linear_attention"] * 4}, "layers with a state are not known of 'llama'"),
        ({"num_attention_heads": [8, 8, 8, 4]}, "'num_attention_heads' differs from layer to layer"),
        ({"text_config": 3}, "'text_config' must be an object"),
        ({"quantization_config": 3}, "'quantization_config' must be an object"),
        ({"_strata": 3}, "'_strata' must be an object"),
        ({"routed_expert_hidden_size": 32}, "'routed_expert_hidden_size' is not modelled"),
    ],
)
def test_a_wrong_config_is_one_line_that_names_the_key(change, said):
    assert said in refused(LLAMA | change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_experts_per_tok": 9}, "num_experts_per_tok must be from 1 to the experts"),
        ({"num_experts_per_tok": None}, "has no 'num_experts_per_tok'"),
        ({"n_group": 3}, "n_group must divide the experts"),
        ({"topk_group": 3}, "topk_group be at most n_group"),
        ({"first_k_dense_replace": 5}, "first_k_dense_replace must be at most the layers"),
        ({"moe_layer_freq": [0, 1]}, "'moe_layer_freq' must be 0 or 1 for each layer"),
        ({"mlp_only_layers": [7]}, "'mlp_only_layers' must be places of layers from 0 to 3"),
    ],
)
def test_relations_of_experts_are_checked(change, said):
    assert said in refused(LATENT | change)


def test_architectures_that_are_not_known_are_refused_unless_told_what_they_are():
    said = refused(LLAMA | {"model_type": "llamma"})
    assert "model_type 'llamma' is not known; nearest: llama" in said and "needed" in said
    assert "has no 'model_type'" in refused({k: v for k, v in LLAMA.items() if k != "model_type"})
    assert st.model(LLAMA | {"model_type": "llamma", "_strata": {"as": "llama"}}).hidden == 64
    assert "no family of models" in refused(LLAMA | {"_strata": {"as": "lama"}})
    named = {k: v for k, v in LLAMA.items() if k != "model_type"} | {"architectures": ["LlamaForCausalLM"]}
    assert reading(named, "t").family == "llama"
    wrapped = {"model_type": "kimi_k3", "text_config": LLAMA}
    assert "'kimi_k3' around 'llama' is not known" in refused(wrapped)
    assert "not modelled" in refused({"_class_name": "FluxPipeline"})


def test_unread_keys_are_listed_and_sizes_among_them_warned_of():
    read = reading(LLAMA | {"rope_theta": 1e4, "bos_token_id": 1, "ssm_width": 5, "fancy": "yes"}, "t")
    assert read.unread == ("fancy", "ssm_width") and read.size_like == ("ssm_width",)
    assert "ssm_width" in read.warning and reading(LLAMA, "t").warning == ""


def test_windows_are_honoured_layer_by_layer():
    sliding = LLAMA | {"sliding_window": 32}
    assert kinds(sliding | {"model_type": "mistral"}) == ["window"] * 4
    assert kinds(sliding) == ["full"] * 4
    assert kinds(LLAMA | {"model_type": "mistral", "sliding_window": None}) == ["full"] * 4
    qwen = sliding | {"model_type": "qwen2", "use_sliding_window": False, "max_window_layers": 1}
    assert kinds(qwen) == ["full"] * 4
    assert kinds(qwen | {"use_sliding_window": True}) == ["full", "window", "window", "window"]
    assert kinds(sliding | {"model_type": "gemma2"}) == ["window", "full"] * 2
    assert kinds(sliding | {"model_type": "gemma3_text", "sliding_window_pattern": 3})[:3] == [
        "window", "window", "full",
    ]  # fmt: skip
    assert kinds(sliding | {"model_type": "exaone4", "sliding_window_pattern": "LLG"})[:3] == [
        "window", "window", "full",
    ]  # fmt: skip
    assert kinds(sliding | {"model_type": "cohere2"}) == ["window"] * 3 + ["full"]
    listed = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
    assert kinds(sliding | {"layer_types": listed}) == ["full", "window", "window", "full"]
    llama4 = LLAMA | {"model_type": "llama4_text", "attention_chunk_size": 32}
    assert kinds(llama4) == ["window"] * 3 + ["full"]
    assert kinds(llama4 | {"no_rope_layers": [0, 1, 0, 1]}) == ["full", "window"] * 2


def test_the_cache_of_a_windowed_layer_is_no_longer_than_its_window():
    """Gemma 3 27B at 128 Ki tokens keeps a sixth of what full attention in all layers would."""
    config = json.loads((data_folder("models") / "gemma-3-27b.json").read_text())
    inner = config["text_config"]
    every = config | {"text_config": inner | {"layer_types": ["full_attention"] * inner["num_hidden_layers"]}}

    def held(told):
        graph = st.model(told).trace(st.decode(1.0, 131072.0))
        return sum(float(block.count * op.cache_bytes(1.0)) for block in graph.blocks for op in block.ops)

    token = 2 * 2 * 16 * 128  # keys and values of 16 heads of 128 in 2 bytes
    assert held(every) == pytest.approx(62 * token * 131072, rel=1e-3)
    assert held(config) == pytest.approx(token * (10 * 131072 + 52 * 1024), rel=1e-3)


def test_a_text_config_takes_what_it_leaves_out_from_its_class_and_a_flat_config_does_not():
    inner = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    assert st.model({"model_type": "gemma3", "text_config": inner}).heads == 8
    assert "has no 'num_attention_heads'" in refused(inner)


@pytest.mark.parametrize(
    ("name", "shipped", "weights"),
    [
        ("meta-llama/Llama-3.1-70B-Instruct", "llama-3.1-70b", "bf16"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b", "fp8_block"),
        ("Qwen/Qwen3-235B-A22B-Thinking-2507-FP8", "qwen3-235b-a22b", "fp8_block"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "llama-3.3-70b", "fp8"),
        ("Qwen/Qwen2.5-72B-Instruct-AWQ", "qwen2.5-72b", "int4"),
        ("nvidia/DeepSeek-R1-FP4", "deepseek-v3", "fp4"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3", "nvfp4"),
        ("MiniMaxAI/MiniMax-M3-MXFP8", "minimax-m3", "mxfp8"),
        ("deepseek-ai/DeepSeek-V4-Pro", "deepseek-v4-pro", "fp8_block"),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "nemotron-3-super-120b-a12b", "nvfp4"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3", "fp8_block"),
        ("google/gemma-3-27b-it", "gemma-3-27b", "bf16"),
        ("GOOGLE/GEMMA-2-9B-IT", "gemma-2-9b", "bf16"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b", "bf16"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b-v0.1", "bf16"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2", "fp8_block"),
        ("Kimi K2 Thinking", "kimi-k2.5", "bf16"),
        ("GPT OSS 120B", "gpt-oss-120b", "bf16"),
        ("DeepSeek R1", "deepseek-v3", "fp8_block"),
        ("DeepSeek-R1-0528", "deepseek-v3", "fp8_block"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b", "bf16"),
        ("LLaMA-3.3-70B", "llama-3.3-70b", "bf16"),
        ("Llama 2-7B", "llama-2-7b", "bf16"),
        ("llama3.1_8b", "llama-3.1-8b", "bf16"),
        ("LLaMA-4-Maverick", "llama-4-maverick", "bf16"),
        ("Qwen/Qwen2-7B-Instruct", "qwen2-7b", "bf16"),
    ],
)
def test_names_are_those_of_the_hub(name, shipped, weights):
    assert hub_name(name)[0] == shipped
    made = st.model(name)
    assert made.weights == weights and (weights != "int4" or made.weight_only)


def test_every_shipped_name_means_itself_and_what_is_not_a_name_is_one_line():
    for name in names("models"):
        assert hub_name(name) == (name, {})
        assert hub_name(name.upper().replace("-", " "))[0] == name
    for wrong in ("llama", "Llama-3.1-70B-Q4_K_M", "a/b/c", "x" * 5000, "\0", "../..", "-", "/"):
        with pytest.raises(StrataError) as error:
            st.model(wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(UnknownName, match=r"nearest: llama-3.1-70b"):
        st.model("llama-3.1-70bb")


@pytest.mark.parametrize(("name", "experts"), [("Kimi-K2.5", "int4"), ("GPT OSS 120B", "mxfp4")])
def test_experts_alone_are_stored_in_four_bits(name, experts):
    config = st.model(name)
    assert (config.weights, config.expert_weights, config.embedding_dtype) == ("bf16", experts, "bf16")


@pytest.mark.parametrize(
    ("quant", "formats"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, ("fp8_block", False)),
        ({"quant_method": "fbgemm_fp8"}, ("fp8", False)),
        ({"quant_method": "awq", "bits": 4}, ("int4", True)),
        ({"quant_method": "gptq", "bits": 8}, ("int8", True)),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, ("nvfp4", False)),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "MXFP8"}}, ("mxfp8", False)),
        ({"quant_method": "mxfp8"}, ("mxfp8", False)),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, ("mxfp4", False)),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}},
            },
            ("nvfp4", False),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}},
            },
            ("mxfp4", False),
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            ("fp8", False),
        ),
    ],
)
def test_formats_of_weights_are_read(quant, formats):
    made = st.model(LLAMA | {"quantization_config": quant})
    assert (made.weights, made.weight_only) == formats


def test_files_that_are_no_configs_are_one_line(tmp_path):
    for text in ("[" * 100_000, "1" * 10_000, '{"a": ' + "9" * 5000 + "}", "\ufeff{}", '{"model_type": NaN}'):
        path = tmp_path / "config.json"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(BadFile) as error:
            st.model(path)
        assert "\n" not in str(error.value)


ODD = hy.one_of(
    hy.none(), hy.booleans(), hy.integers(-5, 5), hy.integers(10**6, 10**30), hy.floats(), hy.text("aM*-é\n", max_size=3),
    hy.lists(hy.integers(-2, 9), max_size=6), hy.lists(hy.text("aM*-é\n", max_size=4), max_size=6),
    hy.dictionaries(hy.text("aM*-é\n", max_size=3), hy.integers(), max_size=2),
)  # fmt: skip
SHIPPED = [json.loads((data_folder("models") / f"{name}.json").read_text()) for name in names("models")]


@settings(max_examples=400, deadline=None, derandomize=True, database=None)
@given(hy.data())
def test_any_change_of_a_config_is_a_model_or_one_line(data):
    config = dict(data.draw(hy.sampled_from([LLAMA, EXPERTS, LATENT, *SHIPPED])))
    for key in data.draw(hy.lists(hy.sampled_from(sorted(config)), max_size=3, unique=True)):
        if data.draw(hy.booleans()):
            del config[key]
        else:
            config[key] = data.draw(ODD)
    try:
        made = st.model(config)
    except StrataError as error:
        assert "\n" not in str(error) and len(str(error)) < 600
    else:
        assert 1 <= made.layers <= 10_000 and 1 <= made.hidden <= 2**20
        assert math.isfinite(made.ffn) and made.top_k <= max(made.experts, 1.0)


def test_what_is_refused_says_so_in_its_own_class():
    with pytest.raises(NotModelled):
        st.model({"model_type": "bert"})
