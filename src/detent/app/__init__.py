"""The app: what a program declares its jobs on, enqueues them with, and asks about them."""
