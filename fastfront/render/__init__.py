"""Tokenizers, model facts and chat templates: what turns a request into token ids. No HTTP here."""
