"""OpenTelemetry traces (--otlp-traces-endpoint): one span for every generation, sent as OTLP over gRPC or HTTP."""
