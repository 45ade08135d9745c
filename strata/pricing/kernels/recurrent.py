"""Layers of a recurrent network, time step by time step, forward and backward, as a library runs them."""

from __future__ import annotations

from dataclasses import replace

from strata.base.arrays import Number, namespace
from strata.base.precision import bytes_of
from strata.params import quantity, record
from strata.pricing.kernels.device import Device
from strata.pricing.kernels.matmul import matmul
from strata.pricing.kernels.vector import EXPOSED, cache_miss_share, vector_kernel
from strata.pricing.price import Price
from strata.workload.lstm import CELLS, Cell

LOADED = 32.0  # depth of a product's main loop that one round of loads brings


@record
class RecurrentLayer:
    """A layer whose state meets a square matrix for each gate of its cell at each time step."""

    hidden: Number
    batch: Number
    steps: Number
    cell: str
    precision: str

    @property
    def kind(self) -> Cell:
        return CELLS[self.cell]

    @property
    def wide(self) -> Number:
        """Columns of all gates."""
        return self.kind.gates * self.hidden

    def matrix_bytes(self) -> Number:
        """Bytes of the matrices between states; those of the input are as large where it is as wide."""
        return self.wide * self.hidden * bytes_of(self.precision)


@record
class RecurrentLibrary:
    """How a library runs the steps of a recurrent layer in one direction."""

    call: Number = quantity("s", "time of a call before its first step and after its last")
    launches: Number = quantity("1", "kernels of a step that the host launches")
    gap: Number = quantity("s", "time between the kernels of one step and those of the next")
    trips: Number = quantity(
        "1", "trips to memory that the main loop of a step's product waits for, for 32 of depth"
    )


def recurrent_step(
    layer: RecurrentLayer, device: Device, library: RecurrentLibrary, *, backward: bool = False
) -> Price:
    r"""Price of one time step: the product with the matrices between states, and the cell's own arithmetic.

    .. math::
        t = \max(n_l T_l, \; g + \max(d, w) + \epsilon \min(d, w)), \quad
        w = \frac{h}{32} \, \kappa \, (u L_m + (1 - u) L_c), \quad d = T_{gemm} + T_{cell}

    n_l launches of T_l by the host, which runs ahead; a gap g; the product of batch x g h x h and the cell as
    kernels, d; a main loop that waits κ trips for each 32 of its depth, w, at the latency of DRAM L_m for the
    share u of the matrices that has left the cache since the last step, at the cache's L_c else; ε of the
    shorter is not hidden (as rows of `vector_kernel`). Backward the product has the depth of all gates, cut
    by gate, and the cell reads and writes its gradients beside its values.

    Appleyard, Kocisky & Blunsom, Optimizing Performance of Recurrent Neural Networks on GPUs (arXiv
    1604.01946): small kernels in turn, whose matrices are read at every step unless something holds them.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> d, lib = device(chip("h200")), RecurrentLibrary(call=0.0, launches=4.0, gap=0.0, trips=0.0)
    >>> sizes = {"batch": 16.0, "steps": 20.0, "cell": "lstm", "precision": "bf16"}
    >>> small, large = (RecurrentLayer(hidden=h, **sizes) for h in (512.0, 8192.0))
    >>> [round(float(recurrent_step(x, d, lib).time) * 1e6) for x in (small, large)]  # the host, 0.54 GB
    [20, 139]
    """
    h, wide, rows, kind, f = layer.hidden, layer.wide, layer.batch, layer.kind, layer.precision
    chip, units = device.chip, layer.batch * layer.hidden
    state = units * bytes_of(f)
    gone = cache_miss_share(layer.matrix_bytes() + 2.0 * kind.gates * state, device.cache_capacity)
    n, k = (h, wide) if backward else (wide, h)
    product = matmul(rows, n, k, device, f, f, resident=True, warm=1.0 - gone)
    # values of the gates and of the state; backward their gradients too
    each = 2.0 if backward else 1.0
    moved = each * kind.reads * state, each * kind.writes * state
    cell = vector_kernel(*moved, each * kind.flop * units, each * kind.special * units, device, resident=True)
    both = product + cell
    latency = gone * chip.memory.latency + (1.0 - gone) * chip.cache.latency
    wait = h / LOADED * library.trips * latency
    xp = namespace(both.time, wait, library.gap, library.launches, chip.overhead.launch)
    shown = xp.maximum(both.time, wait) + EXPOSED * xp.minimum(both.time, wait)
    time = xp.maximum(library.launches * chip.overhead.launch, library.gap + shown)
    return both.later(time - both.time)


def recurrent_forward(layer: RecurrentLayer, device: Device, library: RecurrentLibrary) -> Price:
    r"""Price of all steps of a layer, without its input's product: :math:`T = T_{call} + s \, t`.

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> lib = RecurrentLibrary(call=1e-3, launches=4.0, gap=0.0, trips=0.0)
    >>> gru = RecurrentLayer(hidden=512.0, batch=16.0, steps=100.0, cell="gru", precision="bf16")
    >>> round(float(recurrent_forward(gru, device(chip("h200")), lib).time) * 1e3, 3)  # 1 + 100 x 0.02
    3.0
    """
    steps = recurrent_step(layer, device, library).times(layer.steps)
    return steps.later(library.call)


def recurrent_backward(layer: RecurrentLayer, device: Device, library: RecurrentLibrary) -> Price:
    r"""Price of a layer's gradients: of its states step by step, then of its matrices over all steps at once.

    .. math:: T = T_{call} + s \, t_{back} + T_{gemm}(h, g h, b s)

    >>> from strata.hardware.chip import chip
    >>> from strata.pricing.kernels.device import device
    >>> lib = RecurrentLibrary(call=0.0, launches=4.0, gap=0.0, trips=0.0)
    >>> lstm = RecurrentLayer(hidden=512.0, batch=64.0, steps=100.0, cell="lstm", precision="bf16")
    >>> h200 = device(chip("h200"))
    >>> forward, backward = (f(lstm, h200, lib).time for f in (recurrent_forward, recurrent_backward))
    >>> bool(forward < backward < 1.1 * forward)  # host-bound steps, and one large product
    True
    """
    f, h = layer.precision, layer.hidden
    steps = recurrent_step(layer, device, library, backward=True).times(layer.steps)
    matrices = matmul(h, layer.wide, layer.batch * layer.steps, device, f, f)
    return (steps + matrices).later(library.call)


def recurrent_call(
    layer: RecurrentLayer,
    device: Device,
    library: RecurrentLibrary,
    layers: Number,
    inputs: Number,
    *,
    backward: bool,
) -> Price:
    """Price of a call of layers as wide as their input, or of their gradients. With `inputs` 1 weights
    are copied into, or out of, one buffer, and inputs of all steps meet theirs in one product a layer before
    the first step; backward gradients of inputs and of their weights take one each.
    """
    rows, h, wide, f = layer.batch * layer.steps, layer.hidden, layer.wide, layer.precision
    own = replace(library, call=library.call / layers)
    if backward:
        products = matmul(rows, h, wide, device, f, f) + matmul(h, wide, rows, device, f, f)
        steps = recurrent_backward(layer, device, own)
    else:
        products = matmul(rows, wide, h, device, f, f, resident=True)
        steps = recurrent_forward(layer, device, own)
    size = 2.0 * layers * layer.matrix_bytes()
    copied = vector_kernel(size, size, 0.0, 0.0, device)
    return (copied + products.times(layers)).times(inputs) + steps.times(layers)
