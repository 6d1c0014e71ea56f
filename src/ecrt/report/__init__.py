"""Results to tables, figures and one HTML page; nothing here trains."""

from ecrt.report.compare_page import write_comparison_page
from ecrt.report.compare_tables import comparison_table
from ecrt.report.diagnosis_page import diagnosis_table, write_diagnosis_page
from ecrt.report.model_page import write_model_page
from ecrt.report.page import render_demo, summarise_demo, write_report
from ecrt.report.tables import rich_table, summarise, summary_table

__all__ = [
    "comparison_table",
    "diagnosis_table",
    "render_demo",
    "rich_table",
    "summarise",
    "summarise_demo",
    "summary_table",
    "write_comparison_page",
    "write_diagnosis_page",
    "write_model_page",
    "write_report",
]
