"""How it is measured: experiments, isolation, telemetry, results, figures and the command line."""
