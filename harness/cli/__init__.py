"""The `outcore` command."""


def main() -> None:
    """Run the command line."""
