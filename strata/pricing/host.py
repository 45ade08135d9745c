"""What the host adds to the kernels of a step, and what captured graphs take off them."""

from __future__ import annotations

from dataclasses import replace

from strata.arrays import Number, namespace
from strata.hardware.chip import Chip
from strata.mapping.engine import Engine
from strata.mapping.layout import Sharding
from strata.memo import Memo, is_settled, settled_record, value_key
from strata.pricing.price import Price
from strata.workload.expert_ops import is_expert_product
from strata.workload.graph import Graph
from strata.workload.tasks import Workload


def host_time(fixed: Number, each: Number, sequences: Number) -> Number:
    r"""Host time of a step [s], which no kernel hides unless it is spent a step ahead (`beside_host`).

    .. math:: T_h = h + n s

    fixed time h; n sequences of the rank, s each.

    Fitted, not derived: see docs/engines.md for the rows behind each engine's numbers.

    >>> round(host_time(4e-4, 2e-5, 64.0) * 1e3, 2)
    1.68
    """
    return fixed + sequences * each


def beside_host(device: Number, sampling: Number, host: Number, asynchronous: Number) -> Number:
    r"""Time of a step [s] whose host schedules it and sends its tokens after the device is done, or beside
    it, a step ahead.

    .. math:: T = \begin{cases} T_d + T_h & \text{one after the other} \\
        \max(T_d + T_s, T_h) & \text{beside each other} \end{cases}

    device time T_d; host time T_h, with T_s of it the device's, at the logits (`Engine.sampling`).

    >>> [float(beside_host(d, 1.0, 4.0, a)) for d, a in ((10.0, 0.0), (10.0, 1.0), (2.0, 1.0))]
    [14.0, 11.0, 4.0]
    """
    xp = namespace(device, sampling, host, asynchronous)
    return xp.where(asynchronous > 0, xp.maximum(device + sampling, host), device + host)


def graph_breaks(engine: Engine, graph: Graph) -> Number:
    """How often a captured graph is broken in a step."""
    at_chunks = 0.0 if engine.breaks_at_chunks is None else engine.breaks_at_chunks
    breaks: Number = 0.0
    for block in graph.blocks:
        if not block.captured:
            breaks = breaks + block.count
        elif block.chunked:
            breaks = breaks + block.count * at_chunks
    return breaks


def launched_blocks(engine: Engine, graph: Graph) -> Number:
    r"""Host time to launch the blocks of a step's layers where no captured graph holds them [s].

    .. math:: T_l = n b + e l

    n attentions and feed-forwards, b each (`Engine.prompt_block`), but those with experts, l each
    (`Engine.expert_layer`): routing, sorting, products and sums are many small kernels.

    >>> from strata.mapping.engine import engine
    >>> from strata.workload.model import model
    >>> from strata.workload.tasks import prefill
    >>> eager = engine("ideal", prompt_block=1e-4, expert_layer=2e-3)
    >>> graphs = [model(name).trace(prefill(1.0, 1000.0)) for name in ("llama-3-70b", "qwen3-30b-a3b")]
    >>> [round(float(launched_blocks(eager, graph)), 4) for graph in graphs]  # 80 and 48 layers
    [0.016, 0.1008]
    """
    block: Number = 0.0 if engine.prompt_block is None else engine.prompt_block
    experts = block if engine.expert_layer is None else engine.expert_layer
    time: Number = 0.0
    for each in graph.blocks:
        if graph.sequence.in_layers(each.name):
            time = time + each.count * (experts if any(map(is_expert_product, each.ops)) else block)
    return time


def host_wait(device: Number, host: Number) -> Number:
    r"""Time that a device waits in a pass, or a step, for a host that launches its kernels ahead [s].

    .. math:: w = \max(T_h - T_d, 0)

    device time T_d of its kernels and host time T_h to launch them: all of it is queued, so that
    the longer of both counts.

    PyTorch, CUDA semantics: calls return before their kernels have run.

    >>> [float(host_wait(3e-3, host)) for host in (2e-3, 4e-3)]
    [0.0, 0.001]
    """
    return namespace(device, host).maximum(host - device, 0.0)


def reads_prompts(work: Workload) -> bool:
    """Whether a step reads prompts, alone or beside tokens that it generates."""
    return work.phase == "prefill" or work.prompts is not None


def with_host(time: Number, engine: Engine, graph: Graph, work: Workload, sharding: Sharding) -> Number:
    """A step of kernels with its engine's host time. Data-parallel ranks have schedulers of their own; where
    a graph is broken the device waits, whatever is scheduled beside it.
    """
    xp = namespace(engine.graphs, engine.graph_break_time)
    broken = xp.where(engine.graphs > 0, engine.graph_break_time, 0.0)
    each, sequences = engine.sequence + engine.stream, work.batch / sharding.replicas
    device = time + graph_breaks(engine, graph) * broken
    told = engine.expert_layer is not None or engine.prompt_block is not None
    if told and reads_prompts(work):
        launching = launched_blocks(engine, graph)
        held = engine.graphs * engine.prompt_graphs > 0
        device = device + host_wait(device, namespace(held, launching).where(held, 0.0, launching))
    if engine.gap is not None:
        device = device + engine.gap
    host = host_time(engine.step, each, sequences)
    if engine.asynchronous is None:
        return device + host
    share = 0.0 if engine.sampling is None else engine.sampling
    return beside_host(device, share * each * sequences, host, engine.asynchronous)


def sampling_energy(chip: Chip, engine: Engine, work: Workload, sharding: Sharding) -> Number:
    r"""Energy of a device at work on the logits of its sequences, in time that counts as the host's [J].

    .. math:: E_s = \sigma \, n s \, \min(\eta B (e_m + e_l), \, h P - P_0)

    n sequences of the rank, s each; share σ of that; streams at ηB of DRAM, with energies e_m and e_l of a
    byte from it through the cache; power limit P, held at its share h, less what flows at rest P_0.

    >>> from strata.hardware.chip import chip
    >>> from strata.mapping.engine import engine
    >>> from strata.workload.tasks import decode
    >>> whole = Sharding(active=frozenset(), degrees={}, axes={})
    >>> half = engine("ideal", sampling=0.5, sequence=1e-5)
    >>> h200 = chip("h200", **{"energy.memory": 6e-11, "energy.cache": 6e-11})
    >>> h200 = replace(h200, memory=replace(h200.memory, stream_efficiency=0.9))
    >>> round(float(sampling_energy(h200, half, decode(100.0, 1.0), whole)), 3)  # 518 W for 0.5 ms
    0.259
    """
    share = 0.0 if engine.sampling is None else engine.sampling
    limit = chip.energy.power_limit * chip.energy.held - chip.energy.static_power
    drawn = chip.memory.bandwidth * chip.memory.stream_efficiency * (chip.energy.memory + chip.energy.cache)
    power = namespace(limit, drawn).minimum(drawn, limit)
    sequences = work.batch / sharding.replicas
    return share * sequences * (engine.sequence + engine.stream) * power


def with_sampling(
    price: Price, chip: Chip, engine: Engine, graph: Graph, work: Workload, sharding: Sharding
) -> Price:
    """A step's work on a device with that on the logits of its sequences, where the engine has it there."""
    if engine.sampling is None:
        return price
    return price.replaced(energy=price.energy + sampling_energy(chip, engine, work, sharding))


def launch_times(chip: Chip, engine: Engine, work: Workload) -> tuple[Number, Number]:
    """Host time to launch one op, and one product of experts with the kernels around it [s]: none where a
    captured graph holds the step.

    Steps that read prompts have graphs of their own. Where an engine has graphs at all its code is compiled,
    and products of experts are launched like other ops.
    """
    xp = namespace(engine.graphs, engine.prompt_graphs, engine.launches, engine.expert_launches)
    held = engine.graphs * engine.prompt_graphs if reads_prompts(work) else engine.graphs
    each = xp.where(held > 0, 0.0, chip.overhead.launch)
    experts = xp.where(engine.graphs > 0, engine.launches, engine.expert_launches)
    return engine.launches * each, experts * each


def chip_under_engine(chip: Chip, engine: Engine) -> Chip:
    r"""A chip whose products run as an engine lets them: least loop times :math:`t (1 - p)`, experts at
    :math:`e r` of the peak.

    On a platform (`chip.platform`) whose kernels it does not choose or tune as well, its products run at its
    `product_rate` of the chip's own.

    Kernels were timed one by one. In a captured graph the weights of the next are fetched while one ends
    (programmatic dependent launch), which hides the share p of the time a loop takes however few its tokens.
    Products of experts were timed in one framework; another's run at r of their rate e.

    >>> from strata.hardware.chip import chip
    >>> from strata.mapping.engine import engine
    >>> half = replace(engine("ideal", pdl_overlap=0.5), expert_rate={"fp8": 0.8})
    >>> made = chip_under_engine(chip("b200"), half)
    >>> round(float(made.overhead.step["bf16"] / chip("b200").overhead.step["bf16"]), 3)
    0.5
    >>> rates, usual = made.experts.efficiency, chip("b200").experts.efficiency
    >>> [round(float(rates[f] / usual[f]), 3) for f in ("fp8", "bf16")]
    [0.8, 1.0]
    """
    xp = namespace(engine.graphs, engine.pdl_overlap)
    left = 1.0 - xp.where(engine.graphs > 0, engine.pdl_overlap, 0.0)
    rates = {name: (engine.expert_rate or {}).get(name, 1.0) for name in chip.experts.efficiency}
    products = (engine.product_rate or {}).get(chip.platform)
    key = value_key(left, rates, products) if is_settled(chip) else None
    if key is None:
        return _with_rates(chip, left, rates, products)
    return _CHIPS.of((chip, key), lambda: settled_record(_with_rates(chip, left, rates, products)))


_CHIPS = Memo(128)


def _with_rates(chip: Chip, left: Number, rates: dict[str, Number], products: Number | None) -> Chip:
    """A chip with so much `left` of its least loop times, and shares of its rates of experts and of products,
    which wait for sums of blocks being scaled as for anything else.
    """
    overhead = replace(chip.overhead, step={name: time * left for name, time in chip.overhead.step.items()})
    experts = {name: share * rates[name] for name, share in chip.experts.efficiency.items()}
    chip = replace(chip, overhead=overhead, experts=replace(chip.experts, efficiency=experts))
    if products is not None:
        shares = {name: share * products for name, share in chip.compute.matrix_efficiency.items()}
        scaling = chip.compute.rescale
        slower_scaling = None if scaling is None else {name: q / products for name, q in scaling.items()}
        compute = replace(chip.compute, matrix_efficiency=shares, rescale=slower_scaling)
        chip = replace(chip, compute=compute)
    return chip
