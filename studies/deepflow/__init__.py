"""DeepFlow (Ardalani, Pal and Gupta, 2023): products by a roofline of every memory level, its program of 2021
(products, streams, memory rings, waves of time steps), generated chips co-designed with strategies, sweeps of
such chips, and meshes laid over devices.
"""

OFFERS = {
    "commands": {
        "codesign": "codesign_command:codesign_command",
        "mapping": "mapping_command:mapping_command",
    },
    "product models": {
        "hierarchical": "hierarchical:hierarchical_matmul",
        "deepflow-2021": "products:deepflow_matmul",
    },
    "stream models": {"deepflow-2021": "products:register_stream"},
    "collectives": {"memory-ring": "memory_ring:memory_ring_times"},
    "device fabrics": {"memory-ring": "memory_ring:with_ring_memory"},
    "pass times": {"deepflow-2021": "wavefront:wavefront_time"},
    "stage counts": {"deepflow-2021": "wavefront:ends_apart_counts"},
    "samplers": {"gradient": "gradient_sampler:Gradient"},
    "study sweeps": {"generate": "study_generated:run_generated"},
    "study runs": {"technology": "study_codesign:run_codesign", "tilings": "tiling_spread:run_tilings"},
}
