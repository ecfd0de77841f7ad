"""The narrow link: a pure model of one direction, and a TCP proxy that enforces it in real time."""
