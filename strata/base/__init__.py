"""What everything stands on: arrays, units, errors, formats, readers, records, boxes."""
