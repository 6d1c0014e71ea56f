"""The page that sets the paper's tables, figures and claims beside ours."""

from paper.page.page import write_paper_page

__all__ = ["write_paper_page"]
