"""Reports to look at: figures, tables and pages."""
