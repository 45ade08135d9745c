"""Small programs that tests of layouts share."""

from strata.workload.dataflow import Dataflow, DataflowKernel


def kernel(name, kind, reads, writes="", weight="", backward=False, **settings):
    return DataflowKernel(
        name=name,
        kind=kind,
        reads=tuple(text.strip() for text in reads.split(",")),
        writes=tuple(writes.split()),
        weight=tuple(weight.split()),
        settings=tuple(settings.items()),
        backward=backward,
    )


def forward_kernels():
    k = kernel
    return (
        k("Add_Prev_Layer", "simd", "x"),
        k("LayerNorm_1", "simd", "Add_Prev_Layer", flop=5.0, whole="hidden"),
        *(k(n, "gemm", "LayerNorm_1", "tokens heads head", "hidden heads head") for n in "QKV"),
        k("MHA_GEMM_1", "gemm", "Q, K: keys heads head", "heads tokens keys"),
        k("SOFTMAX", "simd", "MHA_GEMM_1", flop=4.0, special=1.0),
        k("DropOut_1", "simd", "SOFTMAX"),
        k("MHA_GEMM_2", "gemm", "DropOut_1, V: keys heads head", "tokens heads head"),
        k("PROJ_GEMM", "gemm", "MHA_GEMM_2", "tokens hidden", "heads head hidden"),
        k("DropOut_2", "simd", "PROJ_GEMM"),
        k("Add_1", "simd", "DropOut_2, Add_Prev_Layer"),
        k("LayerNorm_2", "simd", "Add_1", flop=5.0, whole="hidden"),
        k("FFN0", "gemm", "LayerNorm_2", "tokens mlp", "hidden mlp"),
        k("GeLU", "simd", "FFN0", flop=8.0),
        k("FFN1", "gemm", "GeLU", "tokens hidden", "mlp hidden"),
        k("DropOut_3", "simd", "FFN1"),
        k("Add_2", "simd", "DropOut_3, Add_1"),
    )


def backward_kernels():
    def k(*given, **settings):
        return kernel(*given, backward=True, **settings)

    return (
        k("Loss_bwd", "simd", "loss"),
        k("DropOut_3_bwd", "simd", "Loss_bwd"),
        k("FFN1_bwd", "gemm", "DropOut_3_bwd", "tokens mlp", "hidden mlp"),
        k("GeLU_bwd", "simd", "FFN1_bwd"),
        k("FFN0_bwd", "gemm", "GeLU_bwd", "tokens hidden", "mlp hidden"),
        k("LayerNorm_2_bwd", "simd", "FFN0_bwd"),
        k("DropOut_2_bwd", "simd", "LayerNorm_2_bwd"),
        k("PROJ_GEMM_bwd", "gemm", "DropOut_2_bwd", "tokens heads head", "hidden heads head"),
        k("MHA_GEMM_2_bwd1", "gemm", "PROJ_GEMM_bwd, V: keys heads head", "heads tokens keys"),
        k("MHA_GEMM_2_bwd2", "gemm", "DropOut_1, PROJ_GEMM_bwd", "keys heads head"),
        k("V_bwd", "gemm", "MHA_GEMM_2_bwd2", "keys hidden", "heads head hidden"),
        k("DropOut_1_bwd", "simd", "MHA_GEMM_2_bwd1"),
        k("SOFTMAX_bwd", "simd", "DropOut_1_bwd"),
        k("MHA_GEMM_1_bwd1", "gemm", "SOFTMAX_bwd, K: keys heads head", "tokens heads head"),
        k("MHA_GEMM_1_bwd2", "gemm", "SOFTMAX_bwd, Q", "keys heads head"),
        # As that program has it: every head by itself, and nobody reads the result.
        k("Q_bwd", "gemm", "MHA_GEMM_1_bwd1", "tokens heads out", "heads head out"),
        k("K_bwd", "gemm", "MHA_GEMM_1_bwd2", "keys heads out", "heads head out"),
        k("FFN1_bwd_weight_update", "gemm", "GeLU, DropOut_3_bwd", "mlp hidden"),
        k("FFN0_bwd_weight_update", "gemm", "GeLU_bwd, LayerNorm_2", "mlp hidden"),
        k("PROJ_GEMM_bwd_weight_update", "gemm", "MHA_GEMM_2, DropOut_2_bwd", "heads head hidden"),
        k("V_bwd_weight_update", "gemm", "MHA_GEMM_2_bwd2: tokens heads head, LayerNorm_1", "heads head hidden"),
        k("K_bwd_weight_update", "gemm", "MHA_GEMM_1_bwd2: tokens heads head, LayerNorm_1", "heads head hidden"),
        k("Q_bwd_weight_update", "gemm", "MHA_GEMM_1_bwd1, LayerNorm_1", "heads head hidden"),
    )  # fmt: skip


def gpt_layer(hidden=12288.0, heads=96.0, layers=4.0, backward=False):
    sizes = {"hidden": hidden, "heads": heads, "head": hidden / heads, "mlp": 4 * hidden, "out": hidden}
    axes = ("tokens", "hidden")
    return Dataflow(
        name="gpt",
        sizes=sizes,
        derived=(("tokens", "batch*sequence"), ("keys", "tokens")),
        inputs=(("x", axes), ("loss", axes)) if backward else (("x", axes),),
        kernels=forward_kernels() + (backward_kernels() if backward else ()),
        output="Add_2",
        stream="tokens",
        layers=layers,
        layouts=(("tp", (("*", "heads"), ("*", "hidden"), ("*", "mlp"))),),
    )
