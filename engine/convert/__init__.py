"""One-time conversion of model files into the Hugging Face folder layout that engines and frontends load."""
