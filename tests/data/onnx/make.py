"""Writes the .onnx files of this folder: small PyTorch models of several families, exported.

`python tests/data/onnx/make.py` (needs torch 2.13 and onnxscript, which the project itself does not). Weights
that are larger than a few numbers are stored as shapes alone (external data that is not there), so that files
stay small; beside each file `facts.json` holds what PyTorch says of the model: its parameters.
"""

import json
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional as F

HERE = Path(__file__).parent
KEPT = 64  # elements; larger weights are stripped
WIDTH, HEADS, HEAD, MLP, VOCAB, POSITIONS = 64, 4, 16, 256, 1000, 256


class GptBlock(nn.Module):
    """GPT-2: one product for q, k, v; learned positions are outside."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, MLP), nn.Linear(MLP, WIDTH)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.first(x)).split(WIDTH, dim=2)
        q, k, v = (t.view(b, s, HEADS, HEAD).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / HEAD**0.5
        scores = scores.masked_fill(torch.ones(s, s).tril() == 0, float("-inf"))
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, WIDTH)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


class LlamaBlock(nn.Module):
    """Root mean square norms, rotary positions, two key heads for four, a gated network."""

    KV = 2

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Parameter(torch.ones(WIDTH)), nn.Parameter(torch.ones(WIDTH))
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, self.KV * HEAD, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, MLP, bias=False) for _ in range(2))
        self.down = nn.Linear(MLP, WIDTH, bias=False)

    def norm(self, x, scale):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale

    def rotate(self, x, cos, sin):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + turned * sin

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        y = self.norm(x, self.first)
        q = self.q(y).view(b, s, HEADS, HEAD).transpose(1, 2)
        k, v = (p(y).view(b, s, self.KV, HEAD).transpose(1, 2) for p in (self.k, self.v))
        q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
        shape = (b, self.KV, HEADS // self.KV, s, HEAD)
        k, v = (t[:, :, None].expand(shape).reshape(b, HEADS, s, HEAD) for t in (k, v))
        scores = q @ k.transpose(2, 3) * HEAD**-0.5
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, s, WIDTH)
        x = x + self.o(mixed)
        y = self.norm(x, self.second)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Bert(nn.Module):
    """Words, positions and segments; one encoder layer; a head that shares the words' table."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.segments, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.after, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, MLP), nn.Linear(MLP, WIDTH)

    def forward(self, words, segments):
        b, s = words.shape
        x = self.words(words) + self.places(torch.arange(s)) + self.segments(segments)
        x = self.norm(x)
        q, k, v = (p(x).view(b, s, HEADS, HEAD).transpose(1, 2) for p in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, WIDTH)
        x = self.after(x + self.o(mixed))
        x = self.last(x + self.down(F.gelu(self.up(x))))
        return x @ self.words.weight.T


class ResNet(nn.Module):
    """A stem, one residual block with a strided shortcut, pooling and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16)
        self.one, self.one_norm = nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32)
        self.two, self.two_norm = nn.Conv2d(32, 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32)
        self.short, self.short_norm = nn.Conv2d(16, 32, 1, 2, bias=False), nn.BatchNorm2d(32)
        self.classes = nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 3, 2, 1)
        y = self.two_norm(self.two(F.relu(self.one_norm(self.one(x)))))
        x = F.relu(y + self.short_norm(self.short(x)))
        return self.classes(F.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """Down, attention over pixels in the middle, up with a skip: as in diffusion models."""

    def __init__(self):
        super().__init__()
        self.enter, self.down = nn.Conv2d(4, 32, 3, padding=1), nn.Conv2d(32, 64, 3, 2, 1)
        self.norm, self.mid = nn.GroupNorm(8, 64), nn.Conv2d(64, 64, 3, padding=1)
        self.time = nn.Linear(32, 64)
        self.attention_norm = nn.GroupNorm(8, 64)
        self.q, self.k, self.v, self.o = (nn.Conv2d(64, 64, 1) for _ in range(4))
        self.up, self.leave = nn.Conv2d(64, 32, 3, padding=1), nn.Conv2d(64, 4, 3, padding=1)

    def forward(self, x, time):
        skip = self.enter(x)
        x = self.down(skip)
        x = x + self.mid(F.silu(self.norm(x))) + self.time(time)[:, :, None, None]
        y = self.attention_norm(x)
        q, k, v = (p(y).flatten(2) for p in (self.q, self.k, self.v))
        scores = (q.transpose(1, 2) @ k * 64**-0.5).softmax(-1)
        x = x + self.o((v @ scores.transpose(1, 2)).view(x.shape))
        x = self.up(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.leave(torch.cat((x, skip), dim=1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, 32)
        self.lstm, self.gru = nn.LSTM(32, 64, batch_first=True), nn.GRU(64, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, words):
        x, _ = self.lstm(self.words(words))
        return self.head(self.gru(x)[0])


class Vit(nn.Module):
    """Patches by a convolution, a class token, a mixer over tokens and channels."""

    def __init__(self):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, WIDTH, 8, 8), nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.zeros(1, 17, WIDTH))
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.tokens_up, self.tokens_down = nn.Linear(17, 32), nn.Linear(32, 17)
        self.up, self.down = nn.Linear(WIDTH, MLP), nn.Linear(MLP, WIDTH)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.places
        y = self.first(x).transpose(1, 2)
        x = x + self.tokens_down(F.gelu(self.tokens_up(y))).transpose(1, 2)
        x = x + self.down(F.gelu(self.up(self.second(x))))
        return self.head(x[:, 0])


class Moe(nn.Module):
    """Eight experts, two for a token, by one batched product over all experts and a sum with gate weights."""

    EXPERTS, TOP = 8, 2

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, self.EXPERTS, bias=False)
        self.up = nn.Parameter(torch.zeros(self.EXPERTS, WIDTH, MLP))
        self.down = nn.Parameter(torch.zeros(self.EXPERTS, MLP, WIDTH))

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        best, chosen = probabilities.topk(self.TOP, dim=-1)
        gates = torch.zeros_like(probabilities).scatter(1, chosen, best)
        hidden = F.silu(torch.einsum("td,edf->etf", x, self.up))
        return torch.einsum("etd,te->td", torch.einsum("etf,efd->etd", hidden, self.down), gates)


class Dlrm(nn.Module):
    TABLES, ROWS, WIDE = 3, 500, 16

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(self.ROWS, self.WIDE) for _ in range(self.TABLES))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, self.WIDE), nn.ReLU())
        pairs = (self.TABLES + 1) * self.TABLES // 2
        self.top = nn.Sequential(nn.Linear(self.WIDE + pairs, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        rows, columns = torch.tril_indices(self.TABLES + 1, self.TABLES + 1, -1)
        self.register_buffer("pairs", rows * (self.TABLES + 1) + columns, persistent=False)

    def forward(self, dense, sparse):
        dense = self.bottom(dense)
        found = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        vectors = torch.stack([dense, *found], dim=1)
        products = (vectors @ vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        return self.top(torch.cat((dense, products), dim=1))


class Window(nn.Module):
    """Attention inside windows of 4 x 4 pixels, shifted by two: as in Swin."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32)

    def forward(self, x):
        b, h, w, c = x.shape
        y = torch.roll(self.norm(x), (-2, -2), (1, 2))
        y = y.view(b, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        q, k, v = self.qkv(y).reshape(-1, 16, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        y = ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).reshape(-1, 16, c)
        y = self.out(y).view(b, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return x + torch.roll(y, (2, 2), (1, 2))


class Step(nn.Module):
    """One new token of each sequence, with keys and values of those before."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, keys, values):
        b = x.shape[0]
        q, k, v = (p(x).view(b, 1, HEADS, HEAD).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = torch.cat((keys, k), 2), torch.cat((values, v), 2)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, 1, WIDTH)
        return self.o(mixed), k, v


class Mobile(nn.Module):
    """A depthwise convolution, a pointwise one, channels scaled by what they hold."""

    def __init__(self):
        super().__init__()
        self.enter, self.deep = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.point, self.less, self.more = nn.Conv2d(16, 32, 1), nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)
        self.norm = nn.BatchNorm2d(32)

    def forward(self, x):
        x = self.point(F.relu6(self.deep(F.hardswish(self.enter(x)))))
        scale = F.hardsigmoid(self.more(F.relu(self.less(x.mean((2, 3), keepdim=True)))))
        return self.norm(x * scale)


def words(*shape):
    return torch.zeros(*shape, dtype=torch.int64)


B, S = {0: "batch"}, {0: "batch", 1: "sequence"}
MODELS = {
    "gpt": (GptBlock, (torch.zeros(3, 20, WIDTH),), {"x": S}),
    "llama": (
        LlamaBlock,
        (torch.zeros(3, 20, WIDTH), torch.zeros(20, HEAD), torch.zeros(20, HEAD)),
        {"x": S, "cos": {0: "sequence"}, "sin": {0: "sequence"}},
    ),
    "bert": (Bert, (words(3, 20), words(3, 20)), {"words": S, "segments": S}),
    "resnet": (ResNet, (torch.zeros(3, 3, 64, 64),), {"x": B}),
    "unet": (UNet, (torch.zeros(3, 4, 16, 16), torch.zeros(3, 32)), {"x": B, "time": B}),
    "lstm": (Recurrent, (words(3, 20),), {"words": S}),  # torch.export fixes the sequence at 20
    "vit": (Vit, (torch.zeros(3, 3, 32, 32),), {"x": B}),
    "moe": (Moe, (torch.zeros(20, WIDTH),), {"x": {0: "tokens"}}),
    "window": (Window, (torch.zeros(3, 16, 16, 32),), {"x": B}),
    "step": (
        Step,
        (torch.zeros(3, 1, WIDTH), *[torch.zeros(3, HEADS, 20, HEAD)] * 2),
        {"x": B, "keys": {0: "batch", 2: "past"}, "values": {0: "batch", 2: "past"}},
    ),
    "mobile": (Mobile, (torch.zeros(3, 3, 64, 64),), {"x": B}),
    "dlrm": (Dlrm, (torch.zeros(3, 13), words(3, Dlrm.TABLES)), {"dense": B, "sparse": B}),
}


def stripped(model):
    """Weights as shapes: their data is said to lie in a file that is not there."""
    for tensor in model.graph.initializer:
        size = 1
        for d in tensor.dims:
            size *= d
        if size > KEPT and tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entry = tensor.external_data.add()
            entry.key, entry.value = "location", "weights.bin"
    return model


def bare(model):
    """Without what exporters write down about Python."""
    for node in model.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        value.ClearField("metadata_props")
    model.graph.ClearField("metadata_props")
    model.ClearField("metadata_props")
    return model


def export(name, dynamo):
    kind, inputs, axes = MODELS[name]
    torch.manual_seed(0)
    model = kind().eval()
    for parameter in model.parameters():  # exporters join weights that are equal
        nn.init.normal_(parameter)
    path = HERE / f"{name}{'' if dynamo else '-script'}.onnx"
    names = list(axes)
    told = {"dynamic_axes": axes} if not dynamo else {"dynamic_shapes": tuple(axes.values())}
    torch.onnx.export(
        model, inputs, str(path), input_names=names, output_names=["y"], dynamo=dynamo, external_data=False,
        opset_version=20, **told,
    )  # fmt: skip
    onnx.save(bare(stripped(onnx.load(str(path)))), str(path))
    return model


if __name__ == "__main__":
    facts = {}
    for name in MODELS:
        for dynamo in (True, False):
            try:
                model = export(name, dynamo)
            except Exception as error:
                print(name, "dynamo" if dynamo else "script", type(error).__name__, str(error)[:300])
                continue
        facts[name] = {"parameters": sum(p.numel() for p in model.parameters())}
    (HERE / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
