"""Tool calls: parsers of what models write, what a request's tool choice asks of the output, and how to choose among them."""
