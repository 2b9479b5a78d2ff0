"""How the neural systems are trained."""
