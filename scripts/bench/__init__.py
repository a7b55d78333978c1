"""The parts of the proxy's benchmark; `../bench.py` runs them."""
