"""Say why each bad turn of a recording was bad: one record a turn, one verdict a symptom."""
