"""Processes as the operating system knows them: started, spoken to, watched, and ended whole.

Nothing here knows of jobs, of stores or of policies, and nothing is imported by this file: the
child's half must be cheap to import.
"""
