"""Results to tables, figures and HTML pages; nothing here trains."""

from ecrt.report.comparison import comparison_table, verdict_text
from ecrt.report.diagnosis import diagnosis_table, recommendation_text
from ecrt.report.pages import write_page
from ecrt.report.rendering import rich_table, summary_table
from ecrt.report.sources import toy_png

__all__ = [
    "comparison_table",
    "diagnosis_table",
    "recommendation_text",
    "rich_table",
    "summary_table",
    "toy_png",
    "verdict_text",
    "write_page",
]
