"""Runs that are to be made: experiments resolved to configurations, their datasets and
durations."""
