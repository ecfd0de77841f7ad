"""Closed forms for the speed, capacity and traffic of speculative decoding over a link; one idea a file.

Pure functions of floats. Times are milliseconds, a `*_ms` form gives milliseconds per committed token unless it says
otherwise, rates are tokens a second. Every docstring names the paper a form comes from, or says `derived`: it follows
from a model stated there and was not measured. `definition` marks what only names a quantity.
"""
