"""The model: loading, paged attention inside transformers models, running one step."""
