"""Records as people and machines read them: tables, JSON dictionaries, pages and pictures."""
