"""What runs and shows the notebooks: runner, course, report, checks, command line."""
