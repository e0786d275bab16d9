"""Measurement of systems: experiments, isolation, telemetry, results, figures and the
command line."""
