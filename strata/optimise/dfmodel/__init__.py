"""DFModel's own studies in its own terms: systems, training, Table VI, memories."""
