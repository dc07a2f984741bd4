"""What the front end of a web application talks to: start an action, watch it, cancel it."""
