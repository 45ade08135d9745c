"""The example notebook, written and executed: `python docs/scripts/notebook.py docs/notebooks/explore.ipynb`."""

from __future__ import annotations

import sys
from pathlib import Path

CELLS = (
    ("markdown", "# Explore\n\nAnswers show themselves: the last value of a cell is drawn."),
    ("code", "import numpy as np\n\nimport strata as st"),
    ("markdown", "## One question\n\nA decode step of Llama 3 70B on eight H200."),
    ("code", 'r = st.evaluate("8xh200", "llama-3-70b", st.decode(batch=64, context=2048), "tp=8")\nr'),
    ("markdown", "## What does not fit says why"),
    ("code", 'st.evaluate("1xh200", "llama-3-70b", st.decode(batch=64, context=2048))'),
    ("markdown", "## A sweep\n\nThe same over batches and DRAM bandwidths; rows for pandas or polars."),
    (
        "code",
        'swept = st.sweep(\n    "8xh200",\n    "llama-3-70b",\n'
        '    ["batch=log:1:256:9", "chip.memory.bandwidth=4:8:3 TB/s"],\n'
        '    phase="decode",\n    plan="tp=8",\n)\nswept',
    ),
    (
        "code",
        "frame = swept.to_pandas()\n"
        'frame.pivot_table("tokens_per_s", "batch", "chip.memory.bandwidth").round(0)',
    ),
    (
        "code",
        "swept.to_polars().select(\n"
        '    "batch", "chip.memory.bandwidth", "tpot", "energy_per_token", "bound_by"\n).head(4)',
    ),
    (
        "markdown",
        "## A search\n\nDesigns of the next node: tokens a second against energy, TPOT within 20 ms.",
    ),
    (
        "code",
        "found = st.search.search(\n"
        '    "next-node",\n    ["tokens_per_s", "energy_per_token"],\n'
        '    limits=["tpot <= 20 ms"],\n    sampler="random",\n    budget=3000,\n)\nfound',
    ),
    ("markdown", "## A training step, event by event"),
    (
        "code",
        'trained = st.evaluate(\n    "8x8xh200",\n    "llama-3-70b",\n    st.train(batch=64, length=4096),\n'
        '    "tp=8,pp=4,dp=2,microbatches=8,zero=1",\n)\n'
        'step = st.simulate_step(trained, "zero-bubble", detail="stage")\nstep',
    ),
    ("code", 'step.to_pandas().groupby("kind")[["start", "end"]].agg(["min", "max"]).round(3)'),
    (
        "markdown",
        "## A mapping\n\nKernels of a layer fused into partitions on a dataflow chip, with the proof.",
    ),
    (
        "code",
        "from strata.optimise.joint import map_program\n\n"
        'map_program("gpt3-layer", "8xsn10", st.forward(1.0), plan="tp=8")',
    ),
)
KEPT = ("text/html", "text/plain")  # of what a cell shows


def notebook() -> object:
    """The notebook, not executed; the same cells give the same text."""
    import nbformat.v4 as form

    cells = []
    for number, (kind, text) in enumerate(CELLS):
        make = form.new_markdown_cell if kind == "markdown" else form.new_code_cell
        cells.append(make(text, id=f"cell-{number}"))
    told = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return form.new_notebook(cells=cells, metadata=told)


def executed() -> object:
    """The notebook with what its cells show."""
    from nbclient import NotebookClient

    made = notebook()
    NotebookClient(made, timeout=300, kernel_name="python3").execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # when it ran says nothing
        for output in cell.get("outputs", []):
            if "data" in output:
                output["data"] = {k: v for k, v in output["data"].items() if k in KEPT}
    made.metadata.pop("language_info", None)
    return made


if __name__ == "__main__":
    import nbformat

    nbformat.write(executed(), Path(sys.argv[1]))
