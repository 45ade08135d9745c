"""DeepStack in its own terms: its search by stages."""

OFFERS = {"samplers": {"hierarchical": "staged_sampler:Hierarchical"}}
