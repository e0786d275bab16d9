"""The process inside the cap: builds the system, runs the epochs, reports at gates."""
