"""Messages between orchestrator and worker: events, gates, pipes, shared progress and
spot checks."""
