"""Jobnik: jobs of ordered stages of tasks, as a view of workflows, their steps and their jobs."""
