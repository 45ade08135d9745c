"""Right inputs to start from: command lines, files and the commands that read them, calls from Python."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ("strata/data", "studies/*/data")

SIZED = "--batch 8 --input 128 --output 32 --engine vllm"
ON = "-m llama-3-8b -s 8xh200"
# Command lines; options after `|` say how long a command may look, and are never dropped or made larger.
COMMANDS = (
    f"predict {ON} {SIZED} --plan tp=8 --phase serve --weights fp8 --kv fp8 --explain",
    f"predict -m mixtral-8x7b -s 8xb200 {SIZED} --plan tp=8,ep=8 --set chip.memory.bandwidth=6TB/s --json",
    "predict -m deepseek-v3 -s 64xstack-ref --batch 64 --phase decode --plan tp=8,dp=8 --overlap tiles",
    "predict -m gemm-8192 -s 8xh200 --batch 2 --plan RC-4-2 --json",
    f"predict {ON} --phase train --batch 64 --plan tp=2,pp=2,dp=2,microbatches=4,zero=1 --trace t.json",
    f"predict {ON} --roofline r.svg --report r.html --set model.hidden=4096 --set engine.overlap=none",
    f"plan {ON} --batch 1,8 --input 128 --output 32 --ttft 2s --tpot 40ms --top 3 --where ep==1",
    "plan -m mixtral-8x7b -s 8xh200 --batch 8 --phase decode --set chip.memory.capacity=80GB --json",
    f"sweep {ON} --vary batch=1,8 --vary chip.memory.bandwidth=2:8:3TB/s --phase decode --plan tp=8 --metric tpot",
    f"sweep {ON} --vary plan.tp=1,2,4,8 --vary input=128,256 --json --report s.html",
    "sweep -m llama-3-8b -s 4xh200 --vary batch=8 --plan best --where cp==1 --orders",
    f"power-cap {ON} {SIZED} --plan tp=8 --caps 300:700:5 --phase serve --weights fp8 --kv fp8 --svg p.svg",
    "power-cap -m llama-3-8b -s 1xh200 --batch 8 --input 100:400 --caps 400,500 --json --table t.csv",
    "timeline -m llama-3-8b -s 8xh200 --batch 16 --input 512 --plan tp=2,pp=4,microbatches=4 --schedule 1f1b "
    "--detail auto --html t.html --trace t.json",
    "timeline -m llama-3-8b -s 2xh200 --batch 8 --phase decode --plan tp=2 --serial --json",
    "list chips --json",
    "list technologies --svg t.svg",
    "show chip h200 --json",
    "show model llama-3-8b --batch 8 --phase decode",
    "show program gpt3-layer --batch 4 --dot g.dot --svg g.svg",
    "show fabric torus-256",
    "schema chip",
    "diff n7 n5 --json",
    f"serving {ON} -i 128 -o 32 --rate 2 --ttft 1s --tpot 50ms --share 0.9 --plan tp=8 --engine vllm --variation 0.5",
    f"serving {ON} -i 128 -o 32 --clients 8 --chunk 256 --sequences 64 --plan tp=8 --json",
    "serving -m mixtral-8x7b -s 8xh200 -i 128 -o 32 --rate 1 --skew 0.3 --disaggregated --prefill-devices 4",
    "speculate --target llama-3-70b --draft llama-3-8b --system 8xh200 --window 1:4 --acceptance 0.6,0.8 --batch 2 "
    "--context 512 --plan tp=8 --draft-plan tp=8 --svg s.svg",
    "speculate --target llama-3-70b --draft llama-3-8b -s 8xh200 --tree --branches 2 --counting independent --json",
    "post-train -m llama-3.1-8b -s 16xh100 --recipe grpo --batch 8 --group 4 --minibatch 16 --prompt 64 --response 100 "
    "--longest 400 --spread 0.5 --epochs 1 --rollout-plan dp=8 --training-plan dp=8,zero=3 --async --svg p.svg",
    "post-train -m llama-3.1-8b -s 8xh100 --recipe ppo --pools one --keep no --rollout-plan dp=8 --partial --json",
    "generate --technology n5 --budget h100 --template gpu --device hbm3e --set power=500W --out chip.toml --json",
    "codesign --technology deepflow-v100 --template deepflow-2021-capped --budget deepflow-v100 --program lstm-lm-v100 "
    "--system 4 --strategy d4 --batch 256 --free area,power --method random --seed 1 | --evaluations 20",
    "fabric hgx-h200 --sizes 8,4 --svg h200.svg --set nvlink.bandwidth=100GB/s",
    "collective all_reduce --system 8xh200 --bytes 8kB,1MB --ranks 8 --stride 1 --algorithms --json",
    "collective all_to_all --fabric torus-256 --sizes 4,4,2,2,4 --bytes 1MB --ranks 4 --links",
    "collective all_reduce --system 8xh200 --bytes 1MB --with all_gather:1MB:4:2 --algorithm ring",
    "map --program gpt3-layer --system 8xsn10 --plan tp=8 --layouts given --tiles 1,2 --json --svg m.svg | --seconds 2",
    "mapping RC-4-2-d8 --package 8x8 --packages 1 --intra 1TB/s --inter 100GB/s --svg m.svg",
    "mapping --mesh tp=4,dp=2 --fabric hgx-h200 --sizes 8,1 --volumes tp=1MB,dp=2MB --json",
    "heat stack-ref --layers 4 --power 60 --dram-power 5 --map hotspot --cooling air --svg heat.svg",
    "heat h200 --power 700 --transient 0.1s --set cooling.bond_thickness=5um --json",
    "dram hbm3 --run 32,256,1KiB --read-share 0.67 --banks 16 --outstanding 1MB --latency 300ns --svg d.svg",
    "area stack-ref --layers 1:4 --set compute.cores=16 --svg a.svg",
    "area h200 --floorplan h200 --json",
    "cost stack-ref --layers 2,4 --json",
    "cost --system 8xh200",
    "cost h200 --set memory.capacity=80GB",
    "validate --data measured --json",
    "calibrate h200 --data measured --only gemm --output c.toml",
    "calibrate --log my.log --fabric infiniband --links 8x400G --nodes 2 --gpus 4 --units us --op all_reduce -o kept --json",
    "calibrate h100 --log my.log --partial --fabric roce",
    "measure --what collectives --out mine --op all_reduce --sizes 1K:1M --dtype half --fabric efa --links 8x400G --quick",
    "search space.toml --goal tokens_per_s --limit tpot<=1s --set batch=4,8 --sampler exact --executor one --seed 1 "
    "--out study | --budget 40 ",
    "search space.toml --goal tokens_per_s,tokens_per_joule --sampler random --gap 0.01 --json | --budget 40",
    "study study --json",
    "kernel gemm --chip h200 --m 1,64 --n 1024 --k 1024 --batch 2 --precision fp8 --set memory.bandwidth=5TB/s",
    "kernel grouped --chip h200 --tokens 512 --experts 16 --top-k 2 --n 1536 --k 1024 --skew 0.5",
    "kernel attention -c h200 --sequences 8 --queries 1 --context 8192 --heads 32 --kv-heads 8 --head-dim 128 --kv fp8",
    "kernel stream --chip h200 --op softmax --rows 8192 --columns 1024,8192 --json",
    "kernel lu --chip h200 --order 1024 --precision fp64 --batch 2",
    "kernel fft --chip h200 --points 4096 --lines 1024",
    "kernel scan --chip h200 --length 8192 --inner 1,1024 --outer 2",
    "kernel sort --chip h200 --length 1000000 --lines 3",
    "kernel embedding_bag --chip h200 --bags 65536 --per-bag 1,20 --width 128",
    "kernel recurrent --chip h200 --hidden 512 --batch 16 --steps 25 --op gru --phase train --call 1ms",
    "kernel ag_gemm --chip h200 --ranks 8 --m 1024 --n 512 --k 1024 --fabric hgx-h200 --start 5us",
    "kernel experts --chip h200 --tokens 512 --experts 16 --hidden 1024 --inner 512 --routing zipf --clock 1GHz",
    f"predict {ON} {SIZED} --plan tp=8 --set chip.memory.bandwidth=x2 --set chip.energy.power_limit=+10% --json",
    f"predict -m llama-3-8b -s 8xh200 {SIZED} --fabric hgx-b200 --price 2.5USD/h --weights nvfp4 --kv mxfp8",
    "predict -m qwen3-next-80b-a3b -s 64of72xgb200 --batch 8 --input 128 --output 32 --phase decode --plan tp=8,dp=8",
    "predict -m jamba-v0.1 -s 8xh200 --batch 8 --input 4096 --output 32 --plan tp=8 --weights mxfp6",
    f"plan {ON} --input 128 --output 32 --goal cheapest --price 2USD/h --ttft 2s --top 2 --json",
    f"serving {ON} -i 128 -o 32 --rate 2 --goal fastest --price 2USD/h --frontier 8 --json",
    f"sweep {ON} --vary chip.memory.bandwidth=x1,x2 --vary batch=1:64:log3 --plan tp=8 --price 2USD/h",
    "cost --system 8xh200 --price 2.5USD/h --json",
    "kernel gemm --chip b200 --m 64 --n 1024 --k 1024 --precision nvfp4 --activations mxfp8 --json",
)  # fmt: skip
# Options that name what is written.
OUTPUTS = ("--out", "--output", "--svg", "--dot", "--report", "--trace", "--roofline", "--html", "--pictures")
# Right values of options and arguments beside those of the command lines.
VALUED = {
    "--model": ("llama-3-8b", "mixtral-8x7b", "gpt-oss-20b", "falcon-h1-7b"),
    "--system": ("8xh200", "2xb200", "gb200-nvl72", "64of72xgb200", "4xbrief.toml"),
    "--program": ("gpt3-layer", "lstm-lm-v100"), "--chip": ("h200", "brief.toml", "stack-ref"), "--phase": ("prefill", "train"),
    "--batch": ("1", "8", "1,8"), "--input": ("128",), "--output": ("32",), "--plan": ("tp=2", "tp=8", "best"),
    "--goal": ("cheapest", "fastest", "most per watt", "tokens_per_s"), "--price": ("2.5USD/h", "2 USD/h"),
    "--fabric": ("hgx-h200", "torus-256"), "--weights": ("fp8", "nvfp4", "mxfp6"), "--kv": ("mxfp8", "fp8"),
    "--set": ("chip.memory.bandwidth=x2", "chip.memory.capacity=+10%", "engine.overlap=none", "model.hidden=4096", "economics.power_price=0.1USD/kWh"),
    "--routing": ("routing.csv",), "--data": ("measured",), "--only": ("gemm",), "--sizes": ("8,1", "8"), "--limit": ("tpot<=1s",),
    "--volumes": ("tp=1MB",), "--mesh": ("tp=4",), "--frontier": ("8",), "--packets": ("roce",), "--rule": ("x=1",), "--speculative": ("llama-3-8b",),
    "predict argument": ("x",), "list argument": ("chips", "models", "systems"), "show argument": ("chip", "model", "h200", "llama-3-8b", "brief.toml"),
    "schema argument": ("chip", "space"), "diff argument": ("n7", "n5", "h200", "brief.toml"), "fabric argument": ("hgx-h200", "torus-256"),
    "collective argument": ("all_reduce", "all_to_all"), "mapping argument": ("RC-4-2-d8",), "heat argument": ("stack-ref", "brief.toml"),
    "dram argument": ("hbm3",), "area argument": ("stack-ref", "h200"), "cost argument": ("h200", "brief.toml"), "calibrate argument": ("h200",),
    "search argument": ("space.toml",), "study argument": ("study",), "compare argument": ("8xh200", "8xb200"),
}  # fmt: skip
# Right values of arguments of public functions.
RIGHT = {
    "system": ("'8xh200'", "'2xb200'"), "model": ("'llama-3-8b'", "st.model('llama-3-8b')"), "program": ("'llama-3-8b'", "st.program('gemm-8192')"),
    "workload": ("st.decode(8, 128)", "st.serve(8, 128, 32)"), "plan": ("'tp=2'", "None"), "engine": ("'vllm'", "'ideal'"), "name": ("'h200'", "'llama-3-8b'"),
    "chip": ("'h200'", "'stack-ref'"), "fabric": ("'hgx-h200'", "st.fabric('hgx-h200')"), "batch": ("8", "[1, 8]"), "context": ("128",), "input": ("128",), "output": ("32",),
    "devices": ("8",), "technology": ("'n5'",), "budget": ("'h100'",), "template": ("'gpu'",), "space": ("SPACE",), "goal": ("'tokens_per_s'",),
    "metrics": ("'tpot'",), "limits": ("['tpot <= 1 s']",), "requests": ("st.serving.Requests(128, 32)",), "rate": ("1",), "clients": ("4",), "power": ("60",),
    "layers": ("4",), "axes": ("['batch=1,8']",), "vary": ("['batch=1,8']",), "pattern": ("'all_reduce'",), "bytes": ("1e6",), "ranks": ("4",), "mesh": ("{'tp': 4}",), "op": ("'gemm'",),
    "target": ("'llama-3-70b'",), "draft": ("'llama-3-8b'",), "counts": ("[[1.0] * 8]",), "path": ("'routing.csv'",), "text": ("'RC-4-2'",), "strategy": ("'RC-4-2'",),
}  # fmt: skip

SPACE = """name = "tiny"
title = "Llama-3-8B decode on 8 H200"
note = "for tests"
[question]
model = "llama-3-8b"
system = "8xh200"
phase = "decode"
input = 128
output = 32
[[axis]]
name = "bandwidth"
field = "chip.memory.bandwidth"
values = ["4 TB/s", "8 TB/s"]
stage = 6
source = "tests: two"
[[axis]]
name = "power"
field = "chip.energy.power_limit"
range = [500, 900, 3]
source = "tests: a range"
[[axis]]
name = "overlap"
field = "engine.overlap"
values = ["none", "tiles"]
source = "tests: words"
[[axis]]
name = "core"
source = "tests: variants"
[axis.variants]
base = {}
large = { "chip.cache.capacity" = "120 MiB" }
[[axis]]
name = "plan"
plans = { where = "pp == 1" }
source = "tests: plans"
[[axis]]
name = "batch"
field = "batch"
values = [4, 8]
source = "tests: batches"
[[constraint]]
keep = "batch <= 8"
why = "small"
[[tie]]
field = "chip.memory.capacity"
value = "1e9 * batch * 20"
source = "tests: a tie"
""".replace("range = [500, 900, 3]", 'values = ["500 W", "700 W", "900 W"]')

STUDY = """title = "a small study"
paper = "nobody (2026)"
[[run]]
name = "depth"
model = "llama-3-8b"
system = "8xh200"
vary = ["batch=1,8"]
phase = "decode"
plan = "tp=8"
[[run]]
name = "chip"
chip = "stack-ref"
vary = ["stack.layers=2,4"]
let = { "stack.connected_layers" = "layers / 2" }
[[claim]]
id = "faster"
says = "more at once is more a second"
paper = 2.0
ours = "depth.tokens_per_s[1] / depth.tokens_per_s[0]"
holds = "ours > 1 and paper > 1"
"""
BRIEF = """like = "h200"
source = "Vendor's brief, June 2026, page 2"
bf16 = "1.8 PFLOP/s"
fp8 = "3.6 PFLOP/s"
fp4 = "7.2 PFLOP/s"
memory_bandwidth = "8 TB/s"
memory_capacity = "192 GiB"
power = "1000 W"
link_bandwidth = "900 GB/s"
"""
PIN = '[[partition]]\nkernels = ["qkv"]\n'
# A short log in the format of nccl-tests: two hosts of two GPUs, all-reduce at 20 us and 50 GB/s.
LOG = "".join(
    [
        "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 1 minBytes 1048576 maxBytes 8388608\n",
        *(f"#  Rank  {r} Group  0 Pid 9{r} on node{r // 2} device {r % 2} [0{r}:00] NVIDIA H100 80GB HBM3\n" for r in range(4)),
        "#   size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n",
        "#    (B)  (elements)  (us)  (GB/s)  (GB/s)  (us)  (GB/s)  (GB/s)\n",
        *(
            f"  {n}  {n // 4}  float  sum  -1" + f"  {(t := 20 + n / 5e4):.1f}  {n / t / 1e3:.2f}  {1.5 * n / t / 1e3:.2f}  0" * 2 + "\n"
            for n in (1 << 20, 1 << 21, 1 << 22, 1 << 23)
        ),
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 55.5\n",
    ]
)  # fmt: skip
ROUTING = "layer,expert,count\n" + "".join(f"0,{e},{e + 1}\n" for e in range(8))


def measured(name: str, rows: int = 6) -> bytes:
    """The first rows of a measured file."""
    lines = (ROOT / "validation" / name).read_text(encoding="utf-8").split("\n")
    return ("\n".join(lines[: rows + 1]) + "\n").encode()


def around() -> dict[str, bytes | str | None]:
    """Files every command line finds where it runs; one is a link to itself, which nobody can open."""
    return {
        "loop": "loop",
        "brief.toml": BRIEF.encode(),
        "space.toml": SPACE.encode(),
        "study/study.toml": STUDY.encode(),
        "measured/h200/gemm.csv": measured("h200/gemm.csv"),
        "routing.csv": ROUTING.encode(),
        "my.log": LOG.encode(),
    }


def shipped(folder: str, *names: str) -> list[Path]:
    """Some shipped files of a kind, or all."""
    places = (f"{data}/{folder}/*.{ending}" for data in DATA for ending in ("toml", "json"))
    every = sorted(path for place in places for path in ROOT.glob(place))
    return [p for p in every if not names or p.stem in names]


def files() -> list[tuple[str, str, bytes, tuple[str, ...]]]:
    """Kind, name, content, and the commands that read each file."""
    found: list[tuple[str, str, bytes, tuple[str, ...]]] = []

    def add(kind: str, name: str, content: bytes, *commands: str) -> None:
        found.append((kind, name, content, commands))

    for path in shipped("chips"):
        add("chip", "my.toml", path.read_bytes(), "show chip my.toml", "predict -m llama-3-8b -s 8xmy.toml --batch 4",
            "kernel gemm --chip my.toml --m 8 --n 64 --k 64", "cost my.toml", "area my.toml")  # fmt: skip
    add("chip in ten lines", "my.toml", BRIEF.encode(), "show chip my.toml --json", "predict -m llama-3-8b -s 8xmy.toml --batch 4",
        "cost my.toml", "area my.toml", "heat my.toml", "diff h200 my.toml")  # fmt: skip
    for path in shipped("fabrics"):
        add("fabric", "my.toml", path.read_bytes(), "show fabric my.toml", "fabric my.toml",
            "collective all_reduce --fabric my.toml --sizes 4,2,2,2,2 --bytes 1MB")  # fmt: skip
    for path in shipped("systems"):
        add(
            "system",
            "my.toml",
            path.read_bytes(),
            "show system my.toml",
            "predict -m llama-3-8b -s my.toml --batch 256",
        )
    for path in shipped("engines"):
        add("engine", "my.toml", path.read_bytes(), "show engine my.toml",
            "predict -m llama-3-8b -s 8xh200 --plan tp=8 --engine my.toml")  # fmt: skip
    for kind, folder in (("transport", "transports"), ("memory", "memories"), ("technology", "technology"),
                         ("device", "devices"), ("link", "links"), ("bonding", "bonding"), ("packaging", "packaging"),
                         ("template", "templates"), ("budget", "budgets"), ("packets", "packets")):  # fmt: skip
        for path in shipped(folder)[:3]:
            add(kind, "my.toml", path.read_bytes(), f"show {kind} my.toml")
    add(
        "technology",
        "my.toml",
        shipped("technology", "n5")[0].read_bytes(),
        "generate --technology my.toml --budget h100",
    )
    add(
        "budget",
        "my.toml",
        shipped("budgets", "h100")[0].read_bytes(),
        "generate --technology n5 --budget my.toml",
    )
    add("template", "my.toml", shipped("templates", "gpu")[0].read_bytes(),
        "generate --technology n5 --budget h100 --template my.toml")  # fmt: skip
    add("memory", "my.toml", shipped("memories")[0].read_bytes(), "dram my.toml")
    add(
        "cooling",
        "my.toml",
        shipped("cooling", "air")[0].read_bytes(),
        "heat stack-ref --power 40 --cooling my.toml",
    )
    add(
        "floorplan", "my.toml", shipped("floorplans", "h200")[0].read_bytes(), "area h200 --floorplan my.toml"
    )
    for path in shipped("programs"):
        add("program", f"my{path.suffix}", path.read_bytes(), f"show program my{path.suffix}",
            f"predict -m my{path.suffix} -s 8xh200 --batch 8")  # fmt: skip
    for path in shipped("models"):
        add("model config", "my.json", path.read_bytes(), "show model my.json",
            "predict -m my.json -s 8xh200 --batch 8", "plan -m my.json -s 2xb200 --phase decode --batch 4 --top 1")  # fmt: skip
    for path in shipped("spaces", "next-node", "deepstack-3d-prefill"):
        add("space", "my.toml", path.read_bytes(), "search my.toml --sampler random --budget 8")
    add(
        "space",
        "my.toml",
        SPACE.encode(),
        "search my.toml --budget 40",
        "search my.toml --sampler random --budget 8",
    )
    add("study", "my/study.toml", STUDY.encode(), "study my", "study my --json")
    intensity = ROOT / "studies" / "deepflow-intensity" / "study.toml"  # a quick one
    add("study", "my/study.toml", intensity.read_bytes(), "study my")
    for name in ("h200/gemm.csv", "h200/stream.csv", "h200/attention.csv", "h200/other.csv", "h200/power.csv",
                 "ops/gemm.csv", "ops/moe.csv", "ops/nccl.csv", "serving/vllm.csv", "serving/silicon.csv",
                 "training/a100_megatron.csv", "training/nvidia_bridge.csv", "ns3/runs.csv", "dram/channel.csv",
                 "v100/deepbench_gemm.csv", "h100/overlap.csv"):  # fmt: skip
        add(
            "measurements",
            f"data/{name}",
            measured(name),
            "validate --data data",
            "validate --data data --json",
        )
    stacks = json.loads((ROOT / "validation" / "thermal" / "stacks_3dice.json").read_text())[:2]
    add("measurements", "data/thermal/stacks_3dice.json", json.dumps(stacks).encode(), "validate --data data")
    add("routing", "my.csv", ROUTING.encode(), "predict -m mixtral-8x7b -s 8xh200 --batch 8 --routing my.csv")
    add(
        "pin",
        "my.toml",
        PIN.encode(),
        "map --program gpt3-layer --system 8xsn10 --plan tp=8 --seconds 1 --pin my.toml",
    )
    add("log", "my.log", LOG.encode(), "calibrate --log my.log --fabric efa -o kept --json", "calibrate h100 --log my.log --fabric roce",
        "calibrate --log my.log --fabric efa --partial -o kept", "calibrate --log my.log --nodes 2 --gpus 4 --units us --op all_reduce")  # fmt: skip
    add("prediction", "a.json", b'{"metrics": {"tpot": 1.0}, "inputs": {"model": "x"}}', "diff a.json a.json")
    return found


# Calls from Python, with `{}` where a value goes.
ARGUMENTS = (
    "None", "0", "-1", "1.5", "-2.5", "inf", "-inf", "nan", "1e300", "10**400", "True", "''", "'x'", "'tp=8'", "b'x'",
    "[]", "[1, 2, 4]", "[1, 'a']", "[[1], [2, 3]]", "[0]", "[-1]", "[nan]", "[inf]", "(1, 2)", "{}", "{'a': 1}", "{1, 2}",
    "object()", "np.array([1.0, 2.0])", "np.array([])", "np.array([1, 2])", "np.array(['a'])", "np.ones((2, 2))",
    "np.array([True])", "np.array(5)", "np.array([None])", "np.array([1 + 2j])", "1j", "len", "Path('.')", "st",
    "np.float32(2)", "np.int64(-2)", "range(3)", "slice(3)", "Exception", "'8xh200'", "st.decode(1, 1)", "st.plan(tp=2)",
    "[1.0] * 10", "'1e999'", "'inf'", "'nan'", "'4 TB/s'", "'h200'", "lambda: 1", "...",
)  # fmt: skip
CALLS = (
    "st.chip({})", "st.chip('h200', cores={})", "st.chip('h200', **{{'memory.bandwidth': {}}})", "st.fabric({})",
    "st.chip('h200', {})", "st.chip(nme={})", "st.chip('h200', kind={})",
    "st.fabric('hgx-h200', bandwidth={})", "st.system({})", "st.system('8xh200', {})", "st.system('8xh200', cores={})",
    "st.system(st.chip('h200'), {})", "st.model({})", "st.model('llama-3-8b', hidden={})", "st.model('llama-3-8b', layers={})",
    "st.model('llama-3-8b', weights={})", "st.model('llama-3-8b', heads={})", "st.engine({})", "st.engine('vllm', overlap={})",
    "st.engine('vllm', step_overhead={})", "st.plan({})", "st.plan(tp={})", "st.plan(tp=8, ep={})", "st.plan(order={})",
    "st.plan('tp=8', zero={})", "st.decode({}, 128)", "st.decode(8, {})", "st.decode(8, 128, tokens={})",
    "st.decode(8, 128, skew={})", "st.decode(8, 128, routing={})", "st.decode(8)", "st.decode(bach={})", "st.prefill({}, 128)",
    "st.prefill(8, 128, cached={})", "st.serve(8, {}, 32)", "st.serve(8, 32, {})", "st.train({}, 128)", "st.forward({})",
    "st.mixed(8, 128, prompts={}, chunk=4)", "st.mixed(8, 128, prompts=2, chunk={})",
    "st.evaluate({}, 'llama-3-8b', st.decode(8, 128), 'tp=8')", "st.evaluate('8xh200', {}, st.decode(8, 128), 'tp=8')",
    "st.evaluate('8xh200', 'llama-3-8b', {}, 'tp=8')", "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), {})",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8', {})",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8', economics={})",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8', backend={})",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8', nosuch={})",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode({}, 128), 'tp=8').metrics.tokens_per_s",
    "st.evaluate('8xh200', 'llama-3-8b', st.serve(8, {}, 128), 'tp=8').bound_by",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), st.plan(tp={}))",
    "st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8').at({})", "st.evaluate_case({})",
    "st.evaluate(st.system('8xh200', **{{'memory.bandwidth': {}}}), 'llama-3-8b', st.decode(8, 128), 'tp=8').metrics",
    "st.program({})", "st.program('gemm-8192', m={})", "st.layout({})", "st.layout({{'p': {}}})", "st.plans({}, st.model('llama-3-8b'))",
    "st.plans(8, {})", "st.plans(8, st.model('llama-3-8b'), phase={})", "st.plans(8, st.model('llama-3-8b'), batch={})",
    "st.plans(8, st.model('llama-3-8b'), zero={})", "st.parse_strategy({})", "st.strategies({}, st.program('gemm-8192'))",
    "st.strategies(4, {})", "st.strategies(4, st.program('gemm-8192'), kinds={})", "st.layout_of({}, st.program('gemm-8192'))",
    "st.routing({})", "st.read_routing({})", "st.reasons({})", "st.dataflow({})", "st.dataflow('x', layers={})", "st.dataflow('x', n={})",
    "st.kernel({}, 'gemm', m=8, n=8, k=8)", "st.kernel('h200', {}, m=8, n=8, k=8)", "st.kernel('h200', 'gemm', m={}, n=8, k=8)",
    "st.kernel('h200', 'gemm', m=8, n=8)", "st.kernel('h200', 'gemm', m=8, n=8, k=8, precision={})",
    "st.kernel('h200', 'attention', sequences={}, queries=1, context=64, heads=8, kv_heads=8, head_dim=64)",
    "st.sweep({}, 'llama-3-8b', ['batch=1,8'])", "st.sweep('8xh200', {}, ['batch=1,8'])", "st.sweep('8xh200', 'llama-3-8b', {})",
    "st.sweep('8xh200', 'llama-3-8b', [{}])", "st.sweep('8xh200', 'llama-3-8b', ['batch=1,8'], plan={}, phase='decode')",
    "st.sweep('8xh200', 'llama-3-8b', ['batch=1,8'], batch={}, plan='tp=8')",
    "st.sweep('8xh200', 'llama-3-8b', ['batch=1,8'], input={}, plan='tp=8')",
    "st.sweep('8xh200', 'llama-3-8b', ['batch=1,8'], metric={}, plan='tp=8')",
    "st.sweep('8xh200', 'llama-3-8b', ['batch=1,8'], changes={}, plan='tp=8')",
    "st.plan_for({}, 'llama-3-8b', st.decode(8, 128))", "st.plan_for('2xh200', {}, st.decode(8, 128))", "st.plan_for('2xh200', 'llama-3-8b', {})",
    "st.plan_for('2xh200', 'llama-3-8b', st.serve(8, 128, 32), ttft={})", "st.plan_for('2xh200', 'llama-3-8b', st.decode(8, 128), top={})",
    "st.plan_for('2xh200', 'llama-3-8b', st.decode(8, 128), where={})", "st.generate({}, 'h100', 'gpu')", "st.generate('n5', {}, 'gpu')",
    "st.generate('n5', 'h100', {})", "st.generate('n5', 'h100', 'gpu', device={})", "st.generate('n5', 'h100', 'gpu', links={})",
    "st.generate('n5', 'h100', 'gpu', power={})",
    "st.serve_under_load('8xh200', 'llama-3-8b', {}, 'tp=8', rate=1)",
    "st.serve_under_load('8xh200', 'llama-3-8b', st.serving.Requests(128, 32), 'tp=8', rate={})",
    "st.serve_under_load('8xh200', 'llama-3-8b', st.serving.Requests(128, 32), {}, clients=4)",
    "st.serve_under_load('8xh200', 'llama-3-8b', st.serving.Requests({}, 32), 'tp=8', clients=4)",
    "st.serving.Requests({}, 32)", "st.simulate_step({})",
    "st.simulate_step(st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8'), {})",
    "st.simulate_step(st.evaluate('8xh200', 'llama-3-8b', st.decode(8, 128), 'tp=8'), detail={})",
    "st.search.space({})", "st.search.space(SPACE, batch={})", "st.search.space(SPACE, {})", "st.search.goal({})", "st.search.goal('tpot', {})",
    "st.search.search({})", "st.search.search(SPACE, {}, budget=8)", "st.search.search(SPACE, sampler={}, budget=8)",
    "st.search.search(SPACE, sampler='random', budget={})", "st.search.search(SPACE, sampler='random', budget=8, seed={})",
    "st.search.search(SPACE, sampler='random', budget=8, limits={})", "st.search.search(SPACE, sampler='random', budget=8, out={})",
    "st.search.search(SPACE, sampler='random', budget=8, nosuch={})",
    "st.network.collective({}, 'all_reduce', bytes=1e6)", "st.network.collective('8xh200', {}, bytes=1e6)",
    "st.network.collective('8xh200', 'all_reduce', bytes={})", "st.network.collective('8xh200', 'all_reduce', bytes=1e6, ranks={})",
    "st.network.collective('8xh200', 'all_reduce', bytes=1e6, stride={})", "st.network.collective('8xh200', 'all_reduce', bytes=1e6, algorithm={})",
    "st.hardware.area({})", "st.hardware.area('h200', cores={})", "st.hardware.cost({})", "st.hardware.economics({})",
    "st.hardware.heat({}, 60)", "st.hardware.heat('stack-ref', {})", "st.hardware.heat('stack-ref', 60, layers={})",
    "st.hardware.heat('stack-ref', 60, map={})", "st.hardware.heat('stack-ref', 60, cells={})", "st.hardware.sized(st.fabric('hgx-h200'), {})",
    "st.hardware.topology({})", "st.hardware.topology('torus-256', {})",
)  # fmt: skip
