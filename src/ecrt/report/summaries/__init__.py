"""Results to plain data, a module for each page: numbers, tables and the codes of verdicts. Words are in templates."""
