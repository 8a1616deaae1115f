"""Set-up and development scripts; nothing here is imported by `fastfront` or `engine`."""
