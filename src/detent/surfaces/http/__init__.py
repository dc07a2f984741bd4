"""What all web surfaces share: routing, access, limits, problems and the server itself."""
