"""What orchestrator and worker tell each other: events, gates, pipes, shared progress and spot checks."""
