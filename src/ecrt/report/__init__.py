"""Results to tables, figures and HTML pages; nothing here trains."""

from ecrt.report.comparison import comparison_table, verdict_text
from ecrt.report.diagnosis import diagnosis_table, recommendation_text
from ecrt.report.drawing import toy_png
from ecrt.report.pages import write_comparison_page, write_diagnosis_page, write_model_page
from ecrt.report.rendering import rich_table, summary_table

__all__ = [
    "comparison_table",
    "diagnosis_table",
    "recommendation_text",
    "rich_table",
    "summary_table",
    "toy_png",
    "verdict_text",
    "write_comparison_page",
    "write_diagnosis_page",
    "write_model_page",
]
