"""Figures of the pages as inline SVG: a module for each page. Labels are the user's: cut to fit, never formulas."""
