"""What a user can get wrong: each mistake is one line that names it and says what would be right, and exit
code 2.
"""

import json

import pytest

PREDICT = ("predict", "--model", "llama-3-70b", "--system", "8xh200")
PLAN = ("plan", "--model", "llama-3-70b", "--system", "8xh200")
SWEEP = ("sweep", "--model", "llama-3-70b", "--system", "8xh200")
ON = ("--system", "8xh200")
OF = ("--model", "llama-3-70b")

# words typed, and what the one line must say: the offending value, and the nearest right name, the choices or
# the levers
NAMES = {
    "unknown model": (
        ("predict", "--model", "lama-3-70b", *ON),
        ["'lama-3-70b'", "llama-3-70b", "strata list models"],
    ),
    "unknown chip": (
        ("predict", *OF, "--system", "8xh20o"),
        ["'h20o'", "nearest: h200", "strata list chips"],
    ),
    "unknown system": (("predict", *OF, "--system", "h200s"), ["'h200s'", "8xh200"]),
    "empty system": (("predict", *OF, "--system", ""), ["no system called ''", "8xh200"]),
    "unknown engine": ((*PREDICT, "--engine", "vlm"), ["'vlm'", "vllm"]),
    "unknown precision": ((*PREDICT, "--weights", "fp9"), ["'fp9'", "fp8", "mxfp4"]),
    "unknown cache precision": ((*PREDICT, "--kv", "bf61"), ["'bf61'", "bf16"]),
    "unknown phase": ((*PREDICT, "--phase", "decod"), ["'decod'", "prefill, decode, serve, train"]),
    "unknown metric": ((*SWEEP, "--vary", "batch=1,8", "--metric", "tokens"), ["'tokens'", "tokens_per_s"]),
    "unknown plan key": ((*PREDICT, "--plan", "tq=8"), ["'tq'", "tp"]),
    "unknown command": (("predit",), ["'predit'", "nearest: predict", "strata --help"]),
    "unknown option": ((*PREDICT, "--bach", "5"), ["'--bach'", "--batch", "strata predict --help"]),
    "unknown kind to list": (("list", "chps"), ["'chps'", "nearest: chips"]),
    "unknown kind to show": (("show", "chp", "h200"), ["'chp'", "nearest: chip"]),
    "unknown chip to show": (("show", "chip", "h20"), ["'h20'", "h200"]),
    "unknown kind of schema": (("schema", "modle"), ["'modle'", "nearest: model"]),
    "missing option": (("predict", *OF), ["predict needs --system", "8xh200", "strata predict --help"]),
    "missing argument": (("show", "chip"), ["show needs its name", "strata show --help"]),
    "option without value": ((*PREDICT, "--batch"), ["--batch", "requires an argument"]),
    "extra word": ((*PREDICT, "fast"), ["fast", "strata predict --help"]),
}
PLANS = {
    "tp not the devices": ((*PREDICT, "--plan", "tp=3"), ["tp=3", "devices", "3 against 8", "levers"]),
    "product of the plan": ((*PREDICT, "--plan", "tp=4"), ["tp=4", "4 against 8", "change dp"]),
    "tp does not divide heads": (
        ("predict", *OF, "--system", "3xh200", "--plan", "tp=3"),
        ["plan.tp must divide", "3 against 64", "levers"],
    ),
    "ep does not divide experts": (
        ("predict", "--model", "mixtral-8x7b", *ON, "--plan", "tp=8,ep=5"),
        ["plan.ep must divide experts", "5 against 8", "divisors"],
    ),
    "experts of a dense model": (
        (*PREDICT, "--plan", "tp=8,ep=8"),
        ["plan.ep must divide experts", "a dense model has ep=1"],
    ),
    "pp exceeds layers": (
        ("predict", *OF, "--system", "128xh200", "--plan", "pp=128", "--batch", "512"),
        ["must not exceed layers", "128 against 80", "lower pp"],
    ),
    "dp exceeds batch": (
        (*PREDICT, "--plan", "dp=8", "--batch", "4"),
        ["must not exceed the batch", "8 against 4", "lower dp"],
    ),
    "micro-batches exceed batch": (
        (*PREDICT, "--plan", "tp=8,microbatches=9", "--batch", "4"),
        ["plan.microbatches", "9 against 4"],
    ),
    "tp zero": ((*PREDICT, "--plan", "tp=0"), ["plan.tp must be at least 1", "tp=0"]),
    "tp negative": ((*PREDICT, "--plan", "tp=-8"), ["plan.tp must be at least 1", "-8"]),
    "tp in pieces": ((*PREDICT, "--plan", "tp=1.5"), ["plan.tp must be a whole number", "1.5"]),
    "tp infinite": ((*PREDICT, "--plan", "tp=inf"), ["plan.tp must be a whole number", "inf"]),
    "tp in words": ((*PREDICT, "--plan", "tp=many"), ["plan.tp must be a whole number", "many"]),
    "fsdp in words": ((*PREDICT, "--plan", "fsdp=yes"), ["whole number", "yes"]),
    "tp twice": ((*PREDICT, "--plan", "tp=8,tp=4"), ["each degree once", "tp=8,tp=4"]),
    "plan without =": ((*PREDICT, "--plan", "tp8"), ["tp=8,ep=8", "'tp8'"]),
    "plan that is also varied": (
        (*SWEEP, "--plan", "tp=8", "--vary", "plan.tp=4,8"),
        ["each degree once", "tp"],
    ),
}
SIZES = {
    "batch zero": ((*PREDICT, "--batch", "0"), ["--batch must be a positive whole number", "'0'"]),
    "batch in pieces": ((*PREDICT, "--batch", "1.5"), ["--batch", "'1.5'"]),
    "batch in words": ((*PREDICT, "--batch", "many"), ["--batch", "'many'"]),
    "batch infinite": ((*PREDICT, "--batch", "inf"), ["--batch", "'inf'"]),
    "negative input": ((*PREDICT, "--input", "-5"), ["--input", "'-5'"]),
    "no output": ((*PREDICT, "--output", "0"), ["--output", "'0'"]),
    "batch in a list": ((*PLAN, "--batch", "1,x"), ["--batch", "'x'"]),
    "none to show": ((*PLAN, "--top", "0"), ["--top", "'0'"]),
    "model of no width": ((*PREDICT, "--set", "model.hidden=0"), ["model.hidden must be positive", "0"]),
    "negative width": ((*PREDICT, "--set", "model.hidden=-5"), ["model.hidden must be positive", "-5"]),
    "width in words": ((*PREDICT, "--set", "model.hidden=big"), ["model.hidden is a number", "'big'"]),
    "batch of a sweep": ((*SWEEP, "--vary", "batch=0,1"), ["batch must be positive", "batch=0,1"]),
}
UNITS = {
    "bytes for a bandwidth": (
        (*PREDICT, "--set", "chip.memory.bandwidth=6 TB"),
        ["memory.bandwidth", "B/s", "'6 TB'"],
    ),
    "no unit": (
        (*PREDICT, "--set", "chip.memory.bandwidth=6"),
        ["memory.bandwidth", "B/s", "'6' without a unit"],
    ),
    "no number": ((*PREDICT, "--set", "chip.memory.bandwidth=fast"), ["memory.bandwidth", "'fast'"]),
    "negative bandwidth": (
        (*PREDICT, "--set", "chip.memory.bandwidth=-1 TB/s"),
        ["memory.bandwidth", "must be positive", "-1e+12"],
    ),
    "no bandwidth at all": (
        (*PREDICT, "--set", "chip.memory.bandwidth=0 TB/s"),
        ["memory.bandwidth must be positive", "but got 0"],
    ),
    "mistyped quantity": (
        (*PREDICT, "--set", "chip.memory.bandwith=6 TB/s"),
        ["'memory.bandwith'", "nearest: memory.bandwidth"],
    ),
    "ambiguous quantity": (
        (*PREDICT, "--set", "chip.bandwidth=6 TB/s"),
        ["'bandwidth'", "cache.bandwidth, memory.bandwidth"],
    ),
    "mistyped owner": ((*PREDICT, "--set", "chp.memory.bandwidth=6 TB/s"), ["'chp'", "nearest: chip"]),
    "mistyped field of a model": ((*PREDICT, "--set", "model.hiden=5"), ["'hiden'", "nearest: hidden"]),
    "mistyped quantity of a fabric": (
        (*PREDICT, "--set", "fabric.latncy=1 us"),
        ["latncy", "nearest: dimension.0.latency"],
    ),
    "set without =": (
        (*PREDICT, "--set", "chip.memory.bandwidth"),
        ["PATH=VALUE", "'chip.memory.bandwidth'"],
    ),
    "parsecs": ((*PLAN, "--ttft", "2 parsecs"), ["'parsecs'", "unknown unit"]),
    "limit without unit": ((*PLAN, "--tpot", "40"), ["--tpot", "'40' without a unit"]),
    "limit in bytes": ((*PLAN, "--tpot", "40 MB"), ["--tpot is measured in s", "'40 MB'"]),
    "negative limit": ((*PLAN, "--ttft", "-2s"), ["--ttft must be a positive time", "'-2s'"]),
    "varied without unit": (
        (*SWEEP, "--vary", "chip.memory.bandwidth=2:8:4"),
        ["B/s", "'2:8:4' without a unit"],
    ),
    "unknown thing to vary": ((*SWEEP, "--vary", "btch=1,2"), ["'btch'", "nearest: batch"]),
    "axis without values": ((*SWEEP, "--vary", "batch="), ["batch=1,8,64", "'batch='"]),
    "axis in words": ((*SWEEP, "--vary", "batch=a,b"), ["batch=1,8,64", "'batch=a,b'"]),
    "range without count": ((*SWEEP, "--vary", "batch=1:8"), ["from:to:count", "'batch=1:8'"]),
    "axis twice": ((*SWEEP, "--vary", "batch=1,2", "--vary", "batch=4,8"), ["each axis", "'batch'"]),
    "seven axes": ((*SWEEP, *("--vary", "batch=1,2") * 7), ["one to 6", "7"]),
    "four quantities": (
        (
            *SWEEP,
            "--vary",
            "batch=1,2",
            "--vary",
            "input=1,2",
            "--vary",
            "output=1,2",
            "--vary",
            "plan.tp=1,2",
        ),
        ["at most 3 quantities", "4"],
    ),
    "a system that is none": ((*SWEEP, "--vary", "system=8xh200,8xh20o"), ["h20o", "nearest"]),
    "words twice": ((*SWEEP, "--vary", "engine=vllm,vllm"), ["each choice once", "vllm"]),
    "too many groups": ((*SWEEP, "--vary", "model.layers=1:300:300"), ["at most 256 groups", "300"]),
    "a range of factors from 0": ((*SWEEP, "--vary", "batch=log:0:8:4"), ["positive numbers"]),
    "no such field of a model": ((*SWEEP, "--vary", "model.layer=1,2"), ["layer"]),
}
SYSTEMS = {
    "not whole nodes": (("predict", *OF, "--system", "12xh200"), ["whole nodes of 8", "12"]),
    "no devices": (("predict", *OF, "--system", "0xh200"), ["at least one device", "0xh200"]),
    "node too large": (("predict", *OF, "--system", "2x16xh200"), ["at most 8 devices", "16"]),
    "fabric without scale-out": (("predict", *OF, "--system", "2x256xstack-ref"), ["2x256xstack-ref", "256"]),
    "does not fit": (
        ("predict", "--model", "llama-3-405b", "--system", "1xrtx-4090"),
        ["does not fit on 1xrtx-4090", "GB and has 25.8 GB", "levers", "use more devices"],
    ),
    "fits in no plan": (
        ("plan", "--model", "llama-3-405b", "--system", "1xrtx-4090"),
        ["does not fit on 1xrtx-4090", "levers"],
    ),
    "no plan is so quick": ((*PLAN, "--tpot", "1us"), ["TPOT at most 1 us", "the quickest has", "levers"]),
}
SERVED = ("serving", *OF, *ON)
SIMULATED = ("simulate", *OF, *ON, "--rate", "1")
LONG = ["more than the context of llama-3-70b (8,192)"]
SERVICES = {
    "unknown version": ((*SERVED, "--engine", "sglang@9.9"), ["'9.9'", "nearest: 0.5.9", "0.4.0"]),
    "no version after @": ((*PLAN, "--engine", "vllm@"), ["a version stands after @", "'vllm@'"]),
    "before the first version": ((*SIMULATED, "--engine", "vllm@2019-01-01"), ["2019-01-01", "0.5.0"]),
    "a version of no list": (("launch", *OF, "-p", "tp=8", "--engine", "vllm@foo"), ["'foo'", "0.24.0"]),
    "no language model": (("serving", "-m", "fft-1024", *ON), ["fft-1024 is no language model"]),
    "no language model to start": (("launch", "-m", "fft-1024", *ON), ["fft-1024 is no language model"]),
    "more devices than there are": ((*SERVED, "--plan", "tp=16"), ["tp=16", "16 against 8", "levers"]),
    "a part that is not legal": ((*SERVED, "--plan", "tp=3"), ["3 of 8xh200", "must divide heads"]),
    "a part of no shape": (
        ("simulate", *OF, "-s", "9x8xh200", "--rate", "1", "--plan", "tp=4,dp=3"),
        ["a pool of 9x8xh200", "got 12"],
    ),
    "no device left to decode": ((*SERVED, "--prefill-devices", "8"), ["pools of 8xh200", "devices=8"]),
    "pools that pass the system": (
        (*SIMULATED, "--prefill", "tp=4", "--decode", "tp=8"),
        ["pools of 4 and 8 devices pass those of 8xh200"],
    ),
    "one pool": ((*SIMULATED, "--prefill", "tp=4"), ["both --prefill PLAN and --decode PLAN"]),
    "a rate without a limit": ((*SIMULATED, "--find-rate"), ["needs a limit on a latency"]),
    "unknown load": (("simulate", *OF, *ON, "--load", "posson:rate=1"), ["'posson'", "poisson"]),
    "two loads": ((*SIMULATED, "--clients", "3"), ["--rate and --clients", "give one"]),
    "unknown lengths": ((*SIMULATED, "-i", "gauss:3"), ["'gauss'"]),
    "a draft without acceptance": ((*SIMULATED, "--speculative", "draft=mtp"), ["needs acceptance"]),
    "a draft of no model": ((*SERVED, "--speculative", "draft=mtpp,acceptance=0.5"), ["'mtpp'"]),
    "too long a guess": (("launch", *OF, "-p", "tp=8", "--draft", "llama-3-8b:99"), ["between 1 and 64"]),
    "predict past the context": ((*PREDICT, "-i", "9000"), LONG),
    "a step past the context": ((*PREDICT, "-i", "9000", "--phase", "decode", "--plan", "tp=8"), LONG),
    "plan past the context": ((*PLAN, "-i", "9000"), LONG),
    "steps past the context": ((*PLAN, "-i", "9000", "--phase", "prefill"), LONG),
    "serving past the context": ((*SERVED, "-i", "9000"), LONG),
    "simulate past the context": ((*SIMULATED, "-i", "9000"), LONG),
    "compare past the context": (("compare", *OF, *ON, "-i", "9000"), LONG),
    "speculate past the context": (
        ("speculate", "--target", "llama-3-70b", "--draft", "llama-3.2-1b", *ON, "--context", "9000"),
        LONG,
    ),
    "launch past the context": (("launch", *OF, *ON, "--context", "9000"), LONG),
}
KNOWN = {**NAMES, **PLANS, **SIZES, **UNITS, **SYSTEMS, **SERVICES}


def one_line(got):
    assert got.code == 2, got.err or got.out
    assert "Traceback" not in got.err
    assert got.err.count("\n") == 1, got.err
    assert got.err.startswith("strata: ")
    assert got.out == ""
    assert len(got.err) < 600
    return got.err


@pytest.mark.parametrize("case", KNOWN)
def test_wrong_words(strata, case):
    words, wanted = KNOWN[case]
    said = one_line(strata(*words))
    for part in wanted:
        assert part in said, said


# -------------------------------------------------------------------------------------------------------
# files

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "vocab_size": 100,
    "intermediate_size": 128,
}
SYSTEM = 'name = "s"\ntitle = "a system"\nchip = "h200"\n'
SOURCED = 'source = "assumed: for a test"'
FILES = {
    "broken JSON": ("m.json", '{"hidden_size": 1', ["m.json is not JSON", "line 1"]),
    "empty JSON": ("m.json", "", ["m.json is not JSON"]),
    "JSON that is no object": ("m.json", "[1]", ["m.json must hold an object"]),
    "bytes for JSON": ("m.json", b"\xff\xfe\x00", ["m.json is not JSON"]),
    "no hidden_size": (
        "m.json",
        json.dumps({k: v for k, v in CONFIG.items() if k != "hidden_size"}),
        ["'hidden_size'", "m:"],
    ),
    "negative hidden_size": (
        "m.json",
        json.dumps({**CONFIG, "hidden_size": -64}),
        ["'hidden_size' must be a whole number from 1", "-64"],
    ),
    "no layers": (
        "m.json",
        json.dumps({**CONFIG, "num_hidden_layers": 0}),
        ["'num_hidden_layers' must be a whole number from 1", "0"],
    ),
    "unknown quantisation": (
        "m.json",
        json.dumps({**CONFIG, "quantization_config": {"quant_method": "aqlm"}}),
        ["aqlm", "fp8, mxfp4"],
    ),
    "broken TOML": ("s.toml", "name = \n", ["s.toml is not TOML", "line 1"]),
    "duplicate key": ("s.toml", 'name = "a"\nname = "b"\n', ["s.toml is not TOML", "line 2"]),
    "bytes for TOML": ("s.toml", b"\xff\xfe\x00", ["s.toml is not TOML"]),
    "empty TOML": ("s.toml", "", ["s.toml: missing key 'name'", "2 more"]),
    "missing key": ("s.toml", 'name = "s"\ntitle = "a system"\n', ["s.toml: missing key 'chip'"]),
    "unknown key": ("s.toml", SYSTEM + 'fabrik = "nvl72"\n', ["unknown key 'fabrik'", "nearest: fabric"]),
    "unknown chip in a file": ("s.toml", SYSTEM.replace("h200", "h2000"), ["'h2000'", "h200"]),
    "unknown fabric in a file": ("s.toml", SYSTEM + 'fabric = "nvl27"\n', ["'nvl27'", "nvl72"]),
    "sizes in words": (
        "s.toml",
        SYSTEM + '[sizes]\nnvlink = { value = "many", source = "assumed: test" }\n',
        ["sizes.nvlink", "'many'"],
    ),
    "sizes of no dimension": (
        "s.toml",
        SYSTEM + '[sizes]\nnvlnk = { value = 8, source = "assumed: test" }\n',
        ["'nvlnk'", "nearest: nvlink"],
    ),
    "circle of bases": ("s.toml", 'base = "s.toml"\n', ["circle", "s -> s"]),
    "no base": ("s.toml", 'base = "missing.toml"\n', ["missing.toml"]),
    "chip with a mistyped key": (
        "c.toml",
        f'base = "h200"\n[memory]\nbandwith = {{ value = "6 TB/s", {SOURCED} }}\n',
        ["'memory.bandwith'", "bandwidth"],
    ),
    "chip with a wrong unit": (
        "c.toml",
        f'base = "h200"\n[memory]\nbandwidth = {{ value = "6 TB", {SOURCED} }}\n',
        ["memory.bandwidth", "B/s", "'6 TB'"],
    ),
    "chip with a bare number": (
        "c.toml",
        f'base = "h200"\n[memory]\nbandwidth = {{ value = 6e12, {SOURCED} }}\n',
        ["memory.bandwidth", "B/s"],
    ),
    "chip without a source": (
        "c.toml",
        'base = "h200"\n[memory]\nbandwidth = { value = "6 TB/s" }\n',
        ["missing key 'memory.bandwidth.source'"],
    ),
    "chip with an empty source": (
        "c.toml",
        'base = "h200"\n[memory]\nbandwidth = { value = "6 TB/s", source = "" }\n',
        ["memory.bandwidth.source"],
    ),
    "chip citing nothing": (
        "c.toml",
        'base = "h200"\n[memory]\nbandwidth = { value = "6 TB/s", source = "@paper: 1" }\n',
        ["'@paper'", "[sources]"],
    ),
    "chip of no kind": ("c.toml", 'base = "h200"\nkind = "cpu"\n', ["kind must be one of gpu", "'cpu'"]),
    "chip with a negative number": (
        "c.toml",
        f'base = "h200"\n[memory]\nlatency = {{ value = "-1 ns", {SOURCED} }}\n',
        ["memory.latency", "'-1 ns'"],
    ),
    "chip above its peak": (
        "c.toml",
        f'base = "h200"\n[memory]\nefficiency = {{ value = 1.2, {SOURCED} }}\n',
        ["at most 1", "1.2"],
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_wrong_files(strata, tmp_path, monkeypatch, case):
    name, content, wanted = FILES[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    words = {
        "m.json": ("predict", "--model", name, *ON),
        "s.toml": ("predict", *OF, "--system", name),
        "c.toml": ("show", "chip", name),
    }[name]
    said = one_line(strata(*words))
    for part in wanted:
        assert part in said, said


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "--model", "missing.json", *ON),
        ("predict", "--model", "folder", *ON),
        ("predict", *OF, "--system", "missing.toml"),
        ("predict", *OF, "--system", "folder.toml"),
        ("show", "chip", "missing.toml"),
        ("show", "engine", "folder.toml"),
        ("diff", "missing.json", "missing.json"),
        ("diff", "folder", "folder"),
        ("validate", "--data", "missing"),
        ("validate", "--data", "folder"),
        (*PREDICT, "--plan", "tp=8", "--json", "--trace", "folder"),
        (*PREDICT, "--plan", "tp=8", "--json", "--report", "folder"),
        (*PREDICT, "--plan", "tp=8", "--json", "--report", "file/report.html"),
    ],
)
def test_missing_files_and_folders_for_files(strata, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "file").write_text("")
    got = strata(*words)
    got.out = "" if "--json" in words else got.out
    assert words[-1].partition("/")[0] in one_line(got) or words[2] in got.err


def test_diff_of_files_that_are_no_results(strata, tmp_path):
    path = tmp_path / "other.json"
    for text in ('{"a": 1}', "[]", "not JSON", ""):
        path.write_text(text)
        assert "other.json is not" in one_line(strata("diff", path, path))
