"""Results to tables, figures and one HTML page; nothing here trains."""

from ecrt.report.pages import write_comparison_page, write_diagnosis_page, write_model_page
from ecrt.report.plots.toy import toy_png
from ecrt.report.summaries.comparison import comparison_table
from ecrt.report.summaries.diagnosis import diagnosis_table, recommendation_text
from ecrt.report.tables import rich_table, summary_table

__all__ = [
    "comparison_table",
    "diagnosis_table",
    "recommendation_text",
    "rich_table",
    "summary_table",
    "toy_png",
    "write_comparison_page",
    "write_diagnosis_page",
    "write_model_page",
]
