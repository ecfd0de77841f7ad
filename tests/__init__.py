"""The test suite: one folder for each package, and makers of tiny models that they share."""
