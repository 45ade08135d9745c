"""Layouts between chips, exactly: options of modules, tables of costs, elimination, degrees, stages."""
