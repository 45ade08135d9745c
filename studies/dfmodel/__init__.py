"""DFModel (Ko et al., 2024; arXiv 2412.16432) in its own terms: systems, training, layers, serving."""

OFFERS = {
    "study runs": {
        "dfmodel_systems": "study_systems:run_systems",
        "drafts": "study_serving:run_drafts",
        "fusion": "study_fusion:run_fusion",
        "published": "published_table:run_published",
        "served_layers": "study_serving:run_served",
    },
    "study pictures": {
        "cells": "study_pictures:draw_cells",
        "mappings": "study_pictures:draw_mappings",
        "stacks": "study_pictures:draw_stacks",
    },
    "system parts": {"dfmodel": "linear_parts:linear_part"},
    "system totals": {"dfmodel": "power:shown_totals"},
}
