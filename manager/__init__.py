"""The manager: stores what users want, schedules, allocates, dispatches."""
