"""Design-space exploration: which configurations are worth building for a network."""
