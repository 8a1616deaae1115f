"""ASGI middleware of users (--middleware): an event loop between the HTTP server and the application. Imported if asked for."""
