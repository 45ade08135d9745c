"""DFModel (Ko et al., 2024; arXiv 2412.16432) in its own terms: systems, training, layers, serving."""

OFFERS = {
    "study runs": {
        "dfmodel_systems": "study_systems:run_systems",
        "drafts": "study_serving:run_drafts",
        "fusion": "study_fusion:run_fusion",
        "served_layers": "study_serving:run_served",
    },
    "system totals": {"dfmodel": "power:linear_totals"},
}
