"""DeepFlow (Ardalani, Pal and Gupta, 2023) as its program of 2021 has it: products, streams, memory rings."""

OFFERS = {
    "product models": {"deepflow-2021": "products:deepflow_matmul"},
    "stream models": {"deepflow-2021": "products:register_stream"},
    "collectives": {"memory-ring": "memory_ring:memory_ring_times"},
    "device fabrics": {"memory-ring": "memory_ring:with_ring_memory"},
    "study runs": {"tilings": "tiling_spread:run_tilings"},
}
