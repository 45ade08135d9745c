"""Which technology pays: upgrades of a generated system, what each is worth over spans of what is assumed."""

OFFERS = {"study runs": {"upgrades": "study_upgrades:run_upgrades"}}
