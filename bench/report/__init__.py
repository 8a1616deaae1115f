"""From a record to what people read: tables, verdicts on the targets, plots, the README's block."""
