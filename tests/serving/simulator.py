"""An engine played through step by step, to check what closed forms say of it."""

import numpy as np


def play(curve, rate=None, clients=None, requests=3000, seed=0):
    """Mean TTFT, its 95th percentile and mean TPOT of the first plan of a curve with one lane.

    Prompts are read one after the other, a piece a step; every sequence in flight gains a token in each step.
    Requests arrive at random at a rate, or each of so many clients sends its next when the last is answered.
    """
    rng = np.random.default_rng(seed)
    step, extra, alone = curve.step[0], curve.extra[0], float(curve.alone[0])
    later, pieces, slots = int(curve.requests.later), int(curve.pieces), int(curve.slots[0])
    arrived = (
        list(np.cumsum(rng.exponential(1.0 / rate, requests)))
        if clients is None
        else list(rng.uniform(0.0, 1e-3, clients))
    )
    first, last, left = {}, {}, {}
    now, taken, reading = 0.0, 0, None
    while len(last) < requests:
        if reading is None and taken < len(arrived) and arrived[taken] <= now and len(left) < slots:
            reading, taken = [taken, pieces], taken + 1
        active = len(left)
        if not active and reading is None:
            now = arrived[taken]
            continue
        now += alone if not active else step[active - 1] + (extra[active - 1] if reading else 0.0)
        for key in [k for k, rest in left.items() if rest == 1]:
            last[key] = now
            if clients is not None:
                arrived.append(now)
        left = {k: rest - 1 for k, rest in left.items() if rest > 1}
        if reading:
            reading[1] -= 1
            if not reading[1]:
                first[reading[0]], left[reading[0]], reading = now, later, None
    steady = [k for k in last if requests // 8 < k < requests - requests // 8]
    ttft = np.array([first[k] - arrived[k] for k in steady])
    tpot = np.array([(last[k] - first[k]) / later for k in steady])
    return ttft.mean(), np.quantile(ttft, 0.95), tpot.mean()
