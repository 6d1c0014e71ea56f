"""Results to tables, figures and one HTML page; nothing here trains."""

from ecrt.report.model_page import write_model_page
from ecrt.report.page import render_demo, summarise_demo, write_report
from ecrt.report.tables import rich_table, summarise, summary_table

__all__ = [
    "render_demo",
    "rich_table",
    "summarise",
    "summarise_demo",
    "summary_table",
    "write_model_page",
    "write_report",
]
